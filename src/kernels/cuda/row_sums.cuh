// Sums over the columns of a row by the threads of a row: those with one threadIdx.y, a warp or a whole block.
#pragma once

#include <algorithm>

#include <cuda_runtime.h>

#include "base/integers.h"

namespace lockstep {

inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr int kWarpSize = 32;
inline constexpr int kMostWarps = 32;

/// All lanes get the sum, with the same bits: both lanes of a pair add the same two numbers.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

/// The sum of the values of a row's threads, blockDim.x of them, all of which call it; all get the same. Several warps a
/// row: then the block is the row, and `shared` has room for kMostWarps floats, which the next call may not use again;
/// the one after it may.
__device__ __forceinline__ float row_sum(float value, float* shared) {
  value = warp_sum(value);
  if (blockDim.x > kWarpSize) {
    const unsigned lane = threadIdx.x % kWarpSize;
    if (lane == 0) {
      shared[threadIdx.x / kWarpSize] = value;
    }
    __syncthreads();
    value = warp_sum(lane < blockDim.x / kWarpSize ? shared[lane] : 0.0F);
  }
  return value;
}

/// The same of two values at once; `shared` has room for 2 * kMostWarps floats.
__device__ __forceinline__ float2 row_sums(float2 values, float* shared) {
  values.x = warp_sum(values.x);
  values.y = warp_sum(values.y);
  if (blockDim.x > kWarpSize) {
    const unsigned lane = threadIdx.x % kWarpSize;
    const unsigned warp = threadIdx.x / kWarpSize;
    if (lane == 0) {
      shared[warp] = values.x;
      shared[kMostWarps + warp] = values.y;
    }
    __syncthreads();
    const bool has_warp = lane < blockDim.x / kWarpSize;
    values.x = warp_sum(has_warp ? shared[lane] : 0.0F);
    values.y = warp_sum(has_warp ? shared[kMostWarps + lane] : 0.0F);
  }
  return values;
}

/// Threads for `items` items of a row, `each` a thread: whole warps, at most `most`.
inline unsigned row_threads(long items, long each, long most) {
  return static_cast<unsigned>(
      std::clamp(round_up(ceil_div(items, each), long{kWarpSize}), long{kWarpSize}, most));
}

/// Calls body(v, first column, columns up to kWidth) for the vectors of a row that a thread has: thread t has the
/// vectors t, t + threads, ... With kVectors > 0 there are at most so many, v is their number, and arrays indexed by it
/// stay in registers; else v is 0.
template <int kWidth, int kVectors, typename Body>
__device__ __forceinline__ void for_own_vectors(long cols, const Body& body) {
  const auto width = [&](long col) {
    return static_cast<int>(min(cols - col, static_cast<long>(kWidth)));
  };
  if constexpr (kVectors > 0) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const long col = static_cast<long>(v * blockDim.x + threadIdx.x) * kWidth;
      if (col < cols) {
        body(v, col, width(col));
      }
    }
  } else {
    const long step = static_cast<long>(blockDim.x) * kWidth;
    for (long col = static_cast<long>(threadIdx.x) * kWidth; col < cols; col += step) {
      body(0, col, width(col));
    }
  }
}

}  // namespace lockstep
