// What the CPU's matrix product tells the rest of the program about itself.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

struct MatMul;

/// Scratch memory that the product takes from its queue, whatever the number of threads.
std::size_t cpu_matmul_workspace_bytes(const MatMul& op);

/// How products are computed on this machine, all of which decides bits: part of the fingerprint.
/// "strips avx512, bf16 as f32" or "strips avx512, bf16 by onednn 2.6.3 avx512_bf16".
/// Throws as native_bf16_is_preferred does: call it at the start to refuse a bad environment.
std::string matmul_implementation_name();

}  // namespace lockstep
