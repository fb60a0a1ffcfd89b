// Tiles of bf16 rows in shared memory and their products on tensor cores: what the attention kernels are made of.
#pragma once

#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>

#include "kernels/cuda/attention_operand.h"
#include "kernels/cuda/primitives.cuh"

namespace lockstep {

/// A block has four warps; each owns a quarter of the rows of its results.
inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = 32 * kTileWarps;

/// Elements of the 16 bytes that are copied at once and that ldmatrix takes for a row.
inline constexpr int kPieceElements = 8;

/// Where a piece lies in a tile of rows of kDim elements, in elements: pieces are permuted within 128 bytes so
/// that one piece of eight neighbouring rows meets each bank of shared memory once.
template <int kDim>
__device__ __forceinline__ int tile_offset(int row, int piece) {
  static_assert(kDim % 64 == 0, "a row fills whole lines of 128 bytes");
  return row * kDim + (piece ^ (row & 7)) * kPieceElements;
}

/// Copies kRows rows of a head into a tile, zeros beyond `rows` and head_dim. Complete after
/// copy_async_commit, copy_async_wait and a barrier.
template <int kRows, int kDim>
__device__ __forceinline__ void load_tile(std::uint16_t* tile,
                                          const HeadRows& from,
                                          long rows,
                                          int head_dim) {
  constexpr int kPieces = kDim / kPieceElements;
  constexpr int kRowsAtOnce = kTileThreads / kPieces;
  static_assert(kRowsAtOnce % 8 == 0 && kRows % kRowsAtOnce == 0);
  const int first_row = static_cast<int>(threadIdx.x) / kPieces;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const int elements = max(0, min(kPieceElements, head_dim - piece * kPieceElements));
  const int rows_left = static_cast<int>(min(rows, long{kRows})) - first_row;
  std::uint16_t* to = tile + tile_offset<kDim>(first_row, piece);
  const std::uint16_t* source = from.first + first_row * from.stride + piece * kPieceElements;
  const long step = kRowsAtOnce * from.stride;
  if (from.aligned) {
#pragma unroll
    for (int row = 0; row < kRows; row += kRowsAtOnce) {
      const bool copies = row < rows_left && elements > 0;
      copy_async_16(to + row * kDim, copies ? source : from.first, copies ? 2 * elements : 0);
      source += step;
    }
    return;
  }
#pragma unroll 1
  for (int row = 0; row < kRows; row += kRowsAtOnce) {
#pragma unroll 1
    for (int element = 0; element < kPieceElements; ++element) {
      const bool copies = row < rows_left && element < elements;
      to[row * kDim + element] = copies ? source[element] : std::uint16_t{0};
    }
    source += step;
  }
}

/// Writes the first `rows` of kRows rows of a tile from `first_row` on, one warp's; it has called __syncwarp.
template <int kRows, int kDim>
__device__ __forceinline__ void store_rows(
    const HeadRows& to, const std::uint16_t* tile, int first_row, long rows, int head_dim) {
  constexpr int kPieces = kDim / kPieceElements;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x % 32); i < kRows * kPieces; i += 32) {
    const int row = i / kPieces;
    const int piece = i % kPieces;
    const int elements = min(kPieceElements, head_dim - piece * kPieceElements);
    if (row >= rows || elements <= 0) {
      continue;
    }
    const std::uint16_t* const source = tile + tile_offset<kDim>(first_row + row, piece);
    std::uint16_t* const target = to.first + row * to.stride + piece * kPieceElements;
    if (to.aligned) {
      *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
    } else {
      for (int element = 0; element < elements; ++element) {
        target[element] = source[element];
      }
    }
  }
}

/// Two neighbouring elements, the first in the lower half.
__device__ __forceinline__ std::uint32_t pack_bf16(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits = 0;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

/// Results of one warp: 16 * kTiles rows of kCols columns, as mma_m16n8k16 spreads them over the lanes. With group =
/// lane / 4 and pair = lane % 4, [t][n][i] is row 16 t + group + 8 (i / 2), column 8 n + 2 pair + i % 2.
template <int kTiles, int kCols>
struct WarpSums {
  float at[kTiles][kCols / 8][4];
};

/// Calls body(element, row, column) for every element that the lane holds.
template <int kTiles, int kCols, typename Body>
__device__ __forceinline__ void for_each_sum(WarpSums<kTiles, kCols>& sums, Body body) {
  const int group = static_cast<int>(threadIdx.x % 32 / 4);
  const int pair = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        body(sums.at[t][n][i], 16 * t + group + 8 * (i / 2), 8 * n + 2 * pair + i % 2);
      }
    }
  }
}

template <int kTiles, int kCols>
__device__ __forceinline__ void clear(WarpSums<kTiles, kCols>& sums) {
  for_each_sum(sums, [](float& sum, int, int) { sum = 0.0F; });
}

/// Which row of a tile a lane names to ldmatrix, and which piece of it at an inner index.
template <int kDim>
struct LaneRow {
  int row_offset = 0;
  int piece = 0;

  /// `row` is a multiple of 8; `step` counts 16 elements.
  __device__ __forceinline__ const std::uint16_t* at(const std::uint16_t* tile,
                                                     int row,
                                                     int step) const {
    return tile + row * kDim + row_offset + (piece ^ (2 * step)) * kPieceElements;
  }
};

/// For left operands [16 rows x 16], and, transposed, for right operands whose rows are the inner index.
template <int kDim>
__device__ __forceinline__ LaneRow<kDim> lane_row_by_rows() {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return {(lane % 16) * kDim, (lane / 16) ^ (lane & 7)};
}

/// For right operands [16 columns x 16] whose rows are columns of the result.
template <int kDim>
__device__ __forceinline__ LaneRow<kDim> lane_row_by_columns() {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return {(lane % 8 + lane / 16 * 8) * kDim, (lane / 8 % 2) ^ (lane & 7)};
}

__device__ __forceinline__ void multiply_both(float (&first)[4],
                                              float (&second)[4],
                                              const std::uint32_t (&left)[4],
                                              const std::uint32_t (&right)[4]) {
  const std::uint32_t lower[2] = {right[0], right[1]};
  const std::uint32_t upper[2] = {right[2], right[3]};
  mma_m16n8k16(first, left, lower);
  mma_m16n8k16(second, left, upper);
}

/// sums[rows x kCols] += left[rows x kDim] * right[kCols x kDim]^T. load_left(fragment, t, step) gives 16 x 16
/// elements of the left operand; right is a place in a tile.
template <int kDim, int kTiles, int kCols, typename LoadLeft>
__device__ __forceinline__ void multiply_by_rows(WarpSums<kTiles, kCols>& sums,
                                                 LoadLeft load_left,
                                                 const std::uint16_t* right) {
  const LaneRow<kDim> lane_row = lane_row_by_columns<kDim>();
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    std::uint32_t left[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      load_left(left[t], t, step);
    }
#pragma unroll
    for (int n = 0; n < kCols / 16; ++n) {
      std::uint32_t fragment[4];
      load_matrix_x4(fragment, lane_row.at(right, 16 * n, step));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply_both(sums.at[t][2 * n], sums.at[t][2 * n + 1], left[t], fragment);
      }
    }
  }
}

/// sums[rows x kDim] += bf16(weights)[rows x kInner] * right[kInner x kDim]; right is a place in a tile.
template <int kTiles, int kDim, int kInner>
__device__ __forceinline__ void multiply_weights(WarpSums<kTiles, kDim>& sums,
                                                 const WarpSums<kTiles, kInner>& weights,
                                                 const std::uint16_t* right) {
  const LaneRow<kDim> lane_row = lane_row_by_rows<kDim>();
#pragma unroll
  for (int step = 0; step < kInner / 16; ++step) {
    std::uint32_t left[kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const auto& lower = weights.at[t][2 * step];
      const auto& upper = weights.at[t][2 * step + 1];
      left[t][0] = pack_bf16(lower[0], lower[1]);
      left[t][1] = pack_bf16(lower[2], lower[3]);
      left[t][2] = pack_bf16(upper[0], upper[1]);
      left[t][3] = pack_bf16(upper[2], upper[3]);
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t fragment[4];
      load_matrix_x4_transposed(fragment, lane_row.at(right, 16 * step, n));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply_both(sums.at[t][2 * n], sums.at[t][2 * n + 1], left[t], fragment);
      }
    }
  }
}

/// Rounds the warp's sums into its own rows of a tile, which no other warp uses any more, and writes them.
template <int kTiles, int kDim>
__device__ __forceinline__ void store_sums(const HeadRows& to,
                                           std::uint16_t* tile,
                                           const WarpSums<kTiles, kDim>& sums,
                                           long rows,
                                           int head_dim) {
  const int first_row = static_cast<int>(threadIdx.x / 32) * 16 * kTiles;
  const int group = static_cast<int>(threadIdx.x % 32 / 4);
  const int pair = static_cast<int>(threadIdx.x % 4);
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + 16 * t + group + 8 * half;
        *reinterpret_cast<std::uint32_t*>(tile + tile_offset<kDim>(row, n) + 2 * pair) =
            pack_bf16(sums.at[t][n][2 * half], sums.at[t][n][2 * half + 1]);
      }
    }
  }
  __syncwarp();
  store_rows<16 * kTiles, kDim>(to, tile, first_row, rows, head_dim);
}

}  // namespace lockstep
