// Which vector instructions the kernels of the CPU use: one choice for a whole process.
#pragma once

#include <string>

namespace lockstep {

/// Makes our own kernels use the same instruction set as oneDNN, which obeys ONEDNN_MAX_CPU_ISA:
/// AVX-512 (F, BW, DQ, VL), AVX2 with FMA, or the baseline. `launch` calls it before every kernel on
/// a CPU; only the first call does anything. Thread-safe.
void select_instruction_set();

/// "avx512", "avx2" or "baseline": part of the fingerprint, since widths decide orders of sums.
std::string instruction_set_name();

}  // namespace lockstep
