// What the CPU's matrix product tells the rest of the program about itself.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

struct MatMul;

/// Scratch memory that the product takes from its queue, whatever the number of threads.
std::size_t cpu_matmul_workspace_bytes(const MatMul& op);

}  // namespace lockstep
