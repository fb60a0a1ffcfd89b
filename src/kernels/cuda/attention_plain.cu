#include <cmath>

#include "base/integers.h"
#include "device/cuda/launch.h"
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_operand.h"
#include "kernels/cuda/attention_plain.h"

// Everything is a product of 64 x 64 results, kept in registers, with both operands in shared memory, the inner
// index first. A thread reads 2 x 16 bytes for 32 operations.

namespace lockstep {
namespace {

constexpr int kEdge = 64;
/// Threads are a square of kSide x kSide; each has 4 x 4 results.
constexpr int kSide = 16;
constexpr int kThreads = kSide * kSide;
/// Columns of heads that are in shared memory at once for scores.
constexpr int kInner = 32;
/// Rows of tiles are this far apart, on multiples of 16 bytes.
constexpr int kPitch = kEdge + 4;

using Sums = float[4][4];

__device__ __forceinline__ float to_f32(float value) {
  return value;
}
__device__ __forceinline__ float to_f32(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16U);
}
__device__ __forceinline__ void store(float* to, float value) {
  *to = value;
}
// To nearest, ties to even.
__device__ __forceinline__ void store(std::uint16_t* to, float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = is_nan ? bits | 0x400000U : bits + 0x7fffU + (bits >> 16U & 1U);
  *to = static_cast<std::uint16_t>(rounded >> 16U);
}

/// A matrix of all tokens and heads.
template <typename T>
struct Operand {
  T* data = nullptr;
  long stride = 0;

  Operand() = default;
  explicit Operand(const Matrix& matrix) : data(matrix.as<T>()), stride(matrix.stride) {}
};

/// At most kEdge rows of a head.
template <typename T>
struct Rows {
  T* first = nullptr;
  long stride = 0;
  int rows = 0;
  int head_dim = 0;
};

template <typename T>
__device__ __forceinline__ Rows<T> rows_of(
    const Operand<T>& operand, const AttentionSizes& sizes, long sequence, long first, long head) {
  const long left = min(sizes.seq_length - first, long{kEdge});
  return {operand.data + (sequence + first) * operand.stride + head * sizes.head_dim,
          operand.stride,
          static_cast<int>(left),
          sizes.head_dim};
}

// tile[d][row] of kInner columns from `column` on; zeros beyond the rows and the head.
template <typename T>
__device__ __forceinline__ void load_transposed(float (&tile)[kInner][kPitch],
                                                const Rows<T>& from,
                                                int column) {
  for (int i = static_cast<int>(threadIdx.x); i < kEdge * kInner; i += kThreads) {
    const int row = i / kInner;
    const int d = i % kInner;
    const bool exists = row < from.rows && column + d < from.head_dim;
    tile[d][row] = exists ? to_f32(from.first[row * from.stride + column + d]) : 0.0F;
  }
}

// tile[row][d] of kGroups * kEdge columns from `column` on; zeros beyond the rows and the head.
template <int kGroups, typename T>
__device__ __forceinline__ void load_rows(float (&tile)[kGroups][kEdge][kPitch],
                                          const Rows<T>& from,
                                          int column) {
  for (int i = static_cast<int>(threadIdx.x); i < kGroups * kEdge * kEdge; i += kThreads) {
    const int row = i / (kGroups * kEdge);
    const int d = i % (kGroups * kEdge);
    const bool exists = row < from.rows && column + d < from.head_dim;
    tile[d / kEdge][row][d % kEdge] =
        exists ? to_f32(from.first[row * from.stride + column + d]) : 0.0F;
  }
}

// sums[i][j] += sum over x of left[x][4 row + i] * right[x][4 column + j].
template <int kLength>
__device__ __forceinline__ void multiply(Sums& sums,
                                         const float (&left)[kLength][kPitch],
                                         const float (&right)[kLength][kPitch]) {
  const int row = 4 * static_cast<int>(threadIdx.x / kSide);
  const int column = 4 * static_cast<int>(threadIdx.x % kSide);
#pragma unroll 4
  for (int x = 0; x < kLength; ++x) {
    const float4 a = *reinterpret_cast<const float4*>(&left[x][row]);
    const float4 b = *reinterpret_cast<const float4*>(&right[x][column]);
    const float lefts[4] = {a.x, a.y, a.z, a.w};
    const float rights[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[i][j] = fmaf(lefts[i], rights[j], sums[i][j]);
      }
    }
  }
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sums[i][j] = 0.0F;
    }
  }
}

/// Operands of scores.
struct ScoreTiles {
  float left[kInner][kPitch];
  float right[kInner][kPitch];
};

// sums = left * right^T over all columns of a head. Begins with a barrier.
template <typename T>
__device__ __forceinline__ void multiply_heads(Sums& sums,
                                               ScoreTiles& tiles,
                                               const Rows<T>& left,
                                               const Rows<T>& right) {
  clear(sums);
  for (int column = 0; column < left.head_dim; column += kInner) {
    __syncthreads();
    load_transposed(tiles.left, left, column);
    load_transposed(tiles.right, right, column);
    __syncthreads();
    multiply<kInner>(sums, tiles.left, tiles.right);
  }
}

// Writes factors[i] * sums[g][i][j] as row 4 row + i, column `column` + kEdge g + 4 column + j of the head.
template <int kGroups, typename T>
__device__ __forceinline__ void store_sums(const Rows<T>& to,
                                           int column,
                                           const float (&factors)[4],
                                           const Sums (&sums)[kGroups]) {
  const int first_row = 4 * static_cast<int>(threadIdx.x / kSide);
  const int first_column = column + 4 * static_cast<int>(threadIdx.x % kSide);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int d = first_column + kEdge * g + j;
        if (first_row + i < to.rows && d < to.head_dim) {
          store(to.first + (first_row + i) * to.stride + d, sums[g][i][j] * factors[i]);
        }
      }
    }
  }
}

// Over the threads that hold scores of one query: half a warp.
template <typename Combine>
__device__ __forceinline__ float combine_over_row(float value, Combine combine) {
#pragma unroll
  for (int distance = 1; distance < kSide; distance *= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffU, value, distance));
  }
  return value;
}

// Factors of 4 x 4 probabilities: of query `query` and on, and of the keys of group `group`. All 1 where nothing is
// dropped.
template <bool kDrops>
__device__ __forceinline__ void make_factors(const HeadMask& mask,
                                             long query,
                                             long group,
                                             Sums& factors) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (!kDrops) {
      factors[i][0] = factors[i][1] = factors[i][2] = factors[i][3] = 1.0F;
      continue;
    }
    const auto words = mask.words(query + i, group);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      factors[i][j] = mask.factor(words[static_cast<unsigned>(j)]);
    }
  }
}

template <typename T>
struct ForwardArguments {
  AttentionSizes sizes;
  Operand<T> q;
  Operand<T> k;
  Operand<T> v;
  Operand<T> out;
  float* log_sum_exp = nullptr;
  AttentionDropout dropout;
};

template <int kGroups>
struct ForwardTiles {
  ScoreTiles scores;
  float probabilities[kEdge][kPitch];  // [keys x queries]
  float v[kGroups][kEdge][kPitch];
};

// A block: 64 queries of one head and 64 kGroups columns of their results, against all keys that they see. 8 x 1,024
// tokens of GPT-2 124M in f32: 12.9 GFLOP, 0.19 ms at 67 TFLOP/s; 100 MB moved.
template <int kGroups, bool kDrops, typename T>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(const ForwardArguments<T> arguments) {
  LOCKSTEP_SHARED_MEMORY(ForwardTiles<kGroups>, tiles);
  const AttentionSizes& sizes = arguments.sizes;
  const long batch = blockIdx.x / sizes.heads;
  const long head = blockIdx.x % sizes.heads;
  const long kv_head = head / (sizes.heads / sizes.kv_heads);
  const long sequence = batch * sizes.seq_length;
  const long block = gridDim.y - 1 - blockIdx.y;  // the longest start first
  const int first_column = static_cast<int>(blockIdx.z) * kGroups * kEdge;
  const int row = 4 * static_cast<int>(threadIdx.x / kSide);
  const int column = 4 * static_cast<int>(threadIdx.x % kSide);
  const Rows<T> q = rows_of(arguments.q, sizes, sequence, block * kEdge, head);
  const HeadMask mask = kDrops ? HeadMask(arguments.dropout, batch, head) : HeadMask();

  float max[4];
  float sum[4];
  Sums result[kGroups];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    max[i] = -INFINITY;
    sum[i] = 0.0F;
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    clear(result[g]);
  }
  for (long key_block = 0; key_block <= block; ++key_block) {
    const Rows<T> k = rows_of(arguments.k, sizes, sequence, key_block * kEdge, kv_head);
    const Rows<T> v = rows_of(arguments.v, sizes, sequence, key_block * kEdge, kv_head);
    Sums scores;
    multiply_heads(scores, tiles->scores, q, k);
    Sums factors;
    make_factors<kDrops>(mask, block * kEdge + row, (key_block * kEdge + column) / 4, factors);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float new_max = max[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (key_block == block && column + j > row + i) {
          scores[i][j] = -INFINITY;
        }
        new_max = fmaxf(new_max, scores[i][j]);
      }
      new_max = combine_over_row(new_max, [](float a, float b) { return fmaxf(a, b); });
      const float decay = exp2f((max[i] - new_max) * sizes.scale_log2);
      float new_sum = 0.0F;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float probability = exp2f((scores[i][j] - new_max) * sizes.scale_log2);
        new_sum += probability;
        tiles->probabilities[column + j][row + i] = probability * factors[i][j];
      }
      new_sum = combine_over_row(new_sum, [](float a, float b) { return a + b; });
      max[i] = new_max;
      sum[i] = fmaf(sum[i], decay, new_sum);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          result[g][i][j] *= decay;
        }
      }
    }
    load_rows<kGroups>(tiles->v, v, first_column);
    __syncthreads();
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      multiply<kEdge>(result[g], tiles->probabilities, tiles->v[g]);
    }
  }

  float factors[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    factors[i] = 1.0F / sum[i];
    if (arguments.log_sum_exp != nullptr && column == 0 && first_column == 0 && row + i < q.rows) {
      arguments
          .log_sum_exp[static_cast<long>(blockIdx.x) * sizes.seq_length + block * kEdge + row + i] =
          fmaf(max[i], sizes.scale, logf(sum[i]));
    }
  }
  const Rows<T> out = rows_of(arguments.out, sizes, sequence, block * kEdge, head);
  store_sums<kGroups>(out, first_column, factors, result);
}

template <typename T>
struct BackwardArguments {
  AttentionSizes sizes;
  Operand<T> q;
  Operand<T> k;
  Operand<T> v;
  Operand<T> dout;
  Operand<T> dq;
  Operand<T> dk;
  Operand<T> dv;
  const float2* statistics = nullptr;
  AttentionDropout dropout;

  __device__ __forceinline__ const float2* statistics_of(long batch, long head) const {
    const long padded = round_up(sizes.seq_length, kStatisticsMultiple);
    return statistics + (batch * sizes.heads + head) * padded;
  }
};

/// A block of queries and one of keys.
template <typename T>
struct Pair {
  Rows<T> q;
  Rows<T> dout;
  Rows<T> k;
  Rows<T> v;
  const float2* statistics = nullptr;  ///< of the block's queries
  HeadMask mask;
  long first_query = 0;
  long first_key = 0;
};

// The probabilities that met the values, and gradients of scores, [queries x keys].
template <bool kDrops, typename T>
__device__ __forceinline__ void compute_scores(ScoreTiles& tiles,
                                               const BackwardArguments<T>& arguments,
                                               const Pair<T>& pair,
                                               Sums& probabilities,
                                               Sums& dscores) {
  const int row = 4 * static_cast<int>(threadIdx.x / kSide);
  const int column = 4 * static_cast<int>(threadIdx.x % kSide);
  multiply_heads(probabilities, tiles, pair.q, pair.k);
  multiply_heads(dscores, tiles, pair.dout, pair.v);
  Sums factors;
  make_factors<kDrops>(pair.mask, pair.first_query + row, (pair.first_key + column) / 4, factors);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 statistics = pair.statistics[row + i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool hidden = pair.first_key + column + j > pair.first_query + row + i;
      const float score = probabilities[i][j] * arguments.sizes.scale_log2;
      const float probability = hidden ? 0.0F : exp2f(score - statistics.x);
      probabilities[i][j] = probability * factors[i][j];
      dscores[i][j] = probability * (dscores[i][j] * factors[i][j] - statistics.y);
    }
  }
}

template <int kGroups>
struct BackwardTiles {
  ScoreTiles scores;
  float weights[kEdge][kPitch];
  float rows[kGroups][kEdge][kPitch];
};

// sums += weights^T rows; `transposed` weights are stored [columns x rows]. Begins with a barrier.
template <int kGroups, typename T>
__device__ __forceinline__ void multiply_weights(Sums (&sums)[kGroups],
                                                 BackwardTiles<kGroups>& tiles,
                                                 const Sums& weights,
                                                 bool transposed,
                                                 const Rows<T>& rows,
                                                 int first_column) {
  const int row = 4 * static_cast<int>(threadIdx.x / kSide);
  const int column = 4 * static_cast<int>(threadIdx.x % kSide);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int x = transposed ? column + j : row + i;
      const int y = transposed ? row + i : column + j;
      tiles.weights[x][y] = weights[i][j];
    }
  }
  load_rows<kGroups>(tiles.rows, rows, first_column);
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    multiply<kEdge>(sums[g], tiles.weights, tiles.rows[g]);
  }
}

// A block: 64 keys of one kv head and 64 kGroups columns of their gradients, against all queries that see them, of
// all heads of the group in turn. 8 x 1,024 tokens of GPT-2 124M in f32: 25.8 GFLOP, 0.39 ms at 67 TFLOP/s.
template <int kGroups, bool kDrops, typename T>
__global__ void __launch_bounds__(kThreads, 1)
    key_gradients_kernel(const BackwardArguments<T> arguments) {
  LOCKSTEP_SHARED_MEMORY(BackwardTiles<kGroups>, tiles);
  const AttentionSizes& sizes = arguments.sizes;
  const long batch = blockIdx.x / sizes.kv_heads;
  const long kv_head = blockIdx.x % sizes.kv_heads;
  const int group_size = sizes.heads / sizes.kv_heads;
  const long sequence = batch * sizes.seq_length;
  const long blocks = gridDim.y;
  const long block = blockIdx.y;
  const int first_column = static_cast<int>(blockIdx.z) * kGroups * kEdge;
  Pair<T> pair;
  pair.k = rows_of(arguments.k, sizes, sequence, block * kEdge, kv_head);
  pair.v = rows_of(arguments.v, sizes, sequence, block * kEdge, kv_head);
  pair.first_key = block * kEdge;

  Sums dk[kGroups];
  Sums dv[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    clear(dk[g]);
    clear(dv[g]);
  }
  for (long head = kv_head * group_size; head < (kv_head + 1) * group_size; ++head) {
    for (long query_block = block; query_block < blocks; ++query_block) {
      pair.q = rows_of(arguments.q, sizes, sequence, query_block * kEdge, head);
      pair.dout = rows_of(arguments.dout, sizes, sequence, query_block * kEdge, head);
      pair.statistics = arguments.statistics_of(batch, head) + query_block * kEdge;
      pair.mask = kDrops ? HeadMask(arguments.dropout, batch, head) : HeadMask();
      pair.first_query = query_block * kEdge;
      Sums probabilities;
      Sums dscores;
      compute_scores<kDrops>(tiles->scores, arguments, pair, probabilities, dscores);
      multiply_weights<kGroups>(dv, *tiles, probabilities, false, pair.dout, first_column);
      multiply_weights<kGroups>(dk, *tiles, dscores, false, pair.q, first_column);
    }
  }
  const float ones[4] = {1.0F, 1.0F, 1.0F, 1.0F};
  const float scales[4] = {sizes.scale, sizes.scale, sizes.scale, sizes.scale};
  store_sums<kGroups>(
      rows_of(arguments.dk, sizes, sequence, block * kEdge, kv_head), first_column, scales, dk);
  store_sums<kGroups>(
      rows_of(arguments.dv, sizes, sequence, block * kEdge, kv_head), first_column, ones, dv);
}

// A block: 64 queries of one head and 64 kGroups columns of their gradients, against all keys that they see. 8 x 1,024
// tokens of GPT-2 124M in f32: 19.3 GFLOP, 0.29 ms at 67 TFLOP/s.
template <int kGroups, bool kDrops, typename T>
__global__ void __launch_bounds__(kThreads, 1)
    query_gradients_kernel(const BackwardArguments<T> arguments) {
  LOCKSTEP_SHARED_MEMORY(BackwardTiles<kGroups>, tiles);
  const AttentionSizes& sizes = arguments.sizes;
  const long batch = blockIdx.x / sizes.heads;
  const long head = blockIdx.x % sizes.heads;
  const long kv_head = head / (sizes.heads / sizes.kv_heads);
  const long sequence = batch * sizes.seq_length;
  const long block = gridDim.y - 1 - blockIdx.y;  // the longest start first
  const int first_column = static_cast<int>(blockIdx.z) * kGroups * kEdge;
  Pair<T> pair;
  pair.q = rows_of(arguments.q, sizes, sequence, block * kEdge, head);
  pair.dout = rows_of(arguments.dout, sizes, sequence, block * kEdge, head);
  pair.statistics = arguments.statistics_of(batch, head) + block * kEdge;
  pair.mask = kDrops ? HeadMask(arguments.dropout, batch, head) : HeadMask();
  pair.first_query = block * kEdge;

  Sums dq[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    clear(dq[g]);
  }
  for (long key_block = 0; key_block <= block; ++key_block) {
    pair.k = rows_of(arguments.k, sizes, sequence, key_block * kEdge, kv_head);
    pair.v = rows_of(arguments.v, sizes, sequence, key_block * kEdge, kv_head);
    pair.first_key = key_block * kEdge;
    Sums probabilities;
    Sums dscores;
    compute_scores<kDrops>(tiles->scores, arguments, pair, probabilities, dscores);
    multiply_weights<kGroups>(dq, *tiles, dscores, true, pair.k, first_column);
  }
  const float scales[4] = {sizes.scale, sizes.scale, sizes.scale, sizes.scale};
  store_sums<kGroups>(
      rows_of(arguments.dq, sizes, sequence, block * kEdge, head), first_column, scales, dq);
}

template <int kGroups>
dim3 grid_of(const AttentionShape& shape, long heads) {
  return {static_cast<unsigned>(shape.batch * heads),
          static_cast<unsigned>(ceil_div(shape.seq_length, long{kEdge})),
          static_cast<unsigned>(ceil_div(shape.head_dim, long{kGroups * kEdge}))};
}

template <int kGroups, typename T>
void launch_forward(CudaQueue& queue, const AttentionForward& op) {
  ForwardArguments<T> arguments;
  arguments.sizes = AttentionSizes(op.shape);
  arguments.q = Operand<T>(op.q);
  arguments.k = Operand<T>(op.k);
  arguments.v = Operand<T>(op.v);
  arguments.out = Operand<T>(op.out);
  arguments.log_sum_exp = op.log_sum_exp;
  arguments.dropout = op.dropout;
  launch_kernel(LaunchShape{grid_of<kGroups>(op.shape, op.shape.heads),
                            dim3(kThreads),
                            sizeof(ForwardTiles<kGroups>)},
                queue.stream(),
                op.dropout.source.drops() ? forward_kernel<kGroups, true, T>
                                          : forward_kernel<kGroups, false, T>,
                arguments);
}

template <int kGroups, typename T>
void launch_backward(CudaQueue& queue, const AttentionBackward& op, const float2* statistics) {
  BackwardArguments<T> arguments;
  arguments.sizes = AttentionSizes(op.shape);
  arguments.q = Operand<T>(op.q);
  arguments.k = Operand<T>(op.k);
  arguments.v = Operand<T>(op.v);
  arguments.dout = Operand<T>(op.dout);
  arguments.dq = Operand<T>(op.dq);
  arguments.dk = Operand<T>(op.dk);
  arguments.dv = Operand<T>(op.dv);
  arguments.statistics = statistics;
  arguments.dropout = op.dropout;
  const std::size_t shared_bytes = sizeof(BackwardTiles<kGroups>);
  const bool drops = op.dropout.source.drops();
  launch_kernel(
      LaunchShape{grid_of<kGroups>(op.shape, op.shape.kv_heads), dim3(kThreads), shared_bytes},
      queue.stream(),
      drops ? key_gradients_kernel<kGroups, true, T> : key_gradients_kernel<kGroups, false, T>,
      arguments);
  launch_kernel(
      LaunchShape{grid_of<kGroups>(op.shape, op.shape.heads), dim3(kThreads), shared_bytes},
      queue.stream(),
      drops ? query_gradients_kernel<kGroups, true, T> : query_gradients_kernel<kGroups, false, T>,
      arguments);
}

}  // namespace

void run_plain_attention(CudaQueue& queue, const AttentionForward& op) {
  if (op.q.dtype == DType::kBF16) {
    launch_forward<2, std::uint16_t>(queue, op);
  } else if (op.shape.head_dim <= kEdge) {
    launch_forward<1, float>(queue, op);
  } else {
    launch_forward<2, float>(queue, op);
  }
}

void run_plain_attention(CudaQueue& queue, const AttentionBackward& op, const float2* statistics) {
  if (op.q.dtype == DType::kBF16) {
    launch_backward<2, std::uint16_t>(queue, op, statistics);
  } else if (op.shape.head_dim <= kEdge) {
    launch_backward<1, float>(queue, op, statistics);
  } else {
    launch_backward<2, float>(queue, op, statistics);
  }
}

}  // namespace lockstep
