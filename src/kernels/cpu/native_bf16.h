// Products of bf16 matrices by the processor's own bf16 instructions, through oneDNN.
#pragma once

#include <string>

#include "device/cpu/thread_pool.h"

namespace lockstep {

struct MatMul;

/// True if the processor has bf16 instructions that oneDNN may use.
bool native_bf16_is_available();

/// True if products of bf16 operands should use oneDNN's bf16 primitives: with AMX, and on AMD
/// processors with avx512_bf16, whose dot products are twice as fast as f32. Elsewhere (Intel's
/// avx512_bf16 runs at half the speed of f32) conversion to f32 while packing wins. Decided by the
/// kind of processor, never by timing; LOCKSTEP_BF16_MATMUL=native or f32 overrides it.
/// Throws RequestError for another value, Error if native was asked for and is not there.
bool native_bf16_is_preferred();

/// What native products are computed with, for the fingerprint: "onednn 2.6.3 avx512_core_bf16".
std::string native_bf16_name();

/// Runs a product of bf16 operands. The longer side of c is cut into panels of a fixed size, each a
/// single-threaded call: bits do not depend on the number of threads. The first call of a shape on
/// a thread creates its primitive (some 100 us) and allocates; later ones do not. Throws Error where
/// native_bf16_is_available() is false.
void multiply_native_bf16(ThreadPool& threads, const MatMul& op);

}  // namespace lockstep
