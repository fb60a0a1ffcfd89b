// Kernels whose elements are independent: a thread takes one vector of one row.
#pragma once

#include <algorithm>
#include <bit>

#include "base/integers.h"
#include "device/cuda/launch.h"
#include "kernels/cuda/vectors.cuh"

namespace lockstep {

inline constexpr unsigned kElementwiseThreads = 256;

/// Calls body(row, first column, number of columns up to kWidth) for every vector.
template <int kWidth, typename Body>
__global__ void __launch_bounds__(kElementwiseThreads)
    run_elementwise(Body body, long rows, long cols) {
  const long row = static_cast<long>(blockIdx.x) * blockDim.y + threadIdx.y;
  const long col = (static_cast<long>(blockIdx.y) * blockDim.x + threadIdx.x) * kWidth;
  if (row < rows && col < cols) {
    body(row, col, static_cast<int>(min(cols - col, static_cast<long>(kWidth))));
  }
}

/// Rows lie along the grid's first dimension, which has no limit that matters.
template <int kWidth, typename Body>
void for_each_vector(cudaStream_t stream, long rows, long cols, const Body& body) {
  if (rows == 0 || cols == 0) {
    return;
  }
  const long vectors = ceil_div(cols, long{kWidth});
  const auto width = static_cast<unsigned>(std::min<unsigned long>(
      std::bit_ceil(static_cast<unsigned long>(vectors)), kElementwiseThreads));
  const unsigned height = kElementwiseThreads / width;
  const dim3 grid(static_cast<unsigned>(ceil_div(rows, long{height})),
                  static_cast<unsigned>(ceil_div(vectors, long{width})));
  launch_kernel(
      {grid, dim3(width, height)}, stream, run_elementwise<kWidth, Body>, body, rows, cols);
}

}  // namespace lockstep
