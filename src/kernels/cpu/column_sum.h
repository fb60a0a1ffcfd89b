// Scratch memory of the CPU's sums over tokens.
#pragma once

#include <cstddef>

namespace lockstep {

struct ColumnSum;

/// One row of f32 for each piece of rows that is summed by one thread.
std::size_t cpu_column_sum_workspace_bytes(const ColumnSum& op);

}  // namespace lockstep
