#include <cmath>

#include "base/integers.h"
#include "device/cuda/launch.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/backend.h"

namespace lockstep {
namespace {

struct ForwardArguments {
  AttentionSizes sizes;
  AttentionOperand q;
  AttentionOperand k;
  AttentionOperand v;
  AttentionOperand out;
  float* log_sum_exp = nullptr;
  AttentionDropout dropout;
};

/// Keys that are scored at once.
constexpr int kKeys = 64;

template <int kDim>
struct ForwardTiles {
  /// Two tiles of 16 queries a warp halve what a product reads from shared memory, where registers allow it.
  static constexpr int kTiles = kDim <= 64 ? 2 : 1;
  static constexpr int kQueries = 16 * kTiles * kTileWarps;

  std::uint16_t q[kQueries * kDim];
  std::uint16_t k[2][kKeys * kDim];
  std::uint16_t v[2][kKeys * kDim];
};

/// The running softmax of the queries that a lane holds scores of.
template <int kTiles>
struct RunningSoftmax {
  float max[kTiles][2];
  float sum[kTiles][2];  ///< of the lane's own keys
};

// Over the four lanes that hold scores of one query.
template <typename Combine>
__device__ __forceinline__ float combine_over_query(float value, Combine combine) {
  value = combine(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return combine(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

// Scores become probabilities relative to the largest score so far; what was summed before shrinks to match.
template <int kTiles, int kDim>
__device__ __forceinline__ void add_to_softmax(WarpSums<kTiles, kKeys>& scores,
                                               float scale_log2,
                                               RunningSoftmax<kTiles>& softmax,
                                               WarpSums<kTiles, kDim>& result) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = softmax.max[t][half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        max = fmaxf(max, fmaxf(scores.at[t][n][2 * half], scores.at[t][n][2 * half + 1]));
      }
      max = combine_over_query(max, [](float a, float b) { return fmaxf(a, b); });
      const float scaled_max = max * scale_log2;
      const float decay = exp2_approximate(fmaf(softmax.max[t][half], scale_log2, -scaled_max));
      float sum = softmax.sum[t][half] * decay;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores.at[t][n][i] = exp2_approximate(fmaf(scores.at[t][n][i], scale_log2, -scaled_max));
          sum += scores.at[t][n][i];
        }
      }
      softmax.max[t][half] = max;
      softmax.sum[t][half] = sum;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        result.at[t][n][2 * half] *= decay;
        result.at[t][n][2 * half + 1] *= decay;
      }
    }
  }
}

// result /= sum of its probabilities; log_sum_exp of `queries` queries from `log_sum_exp` on (or null).
template <int kTiles, int kDim>
__device__ __forceinline__ void finish_softmax(const AttentionSizes& sizes,
                                               const RunningSoftmax<kTiles>& softmax,
                                               long queries,
                                               float* log_sum_exp,
                                               WarpSums<kTiles, kDim>& result) {
  const int group = static_cast<int>(threadIdx.x % 32 / 4);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum =
          combine_over_query(softmax.sum[t][half], [](float a, float b) { return a + b; });
      const float factor = 1.0F / sum;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        result.at[t][n][2 * half] *= factor;
        result.at[t][n][2 * half + 1] *= factor;
      }
      const int query = 16 * t + group + 8 * half;
      if (log_sum_exp != nullptr && threadIdx.x % 4 == 0 && query < queries) {
        log_sum_exp[query] = fmaf(softmax.max[t][half], sizes.scale, logf(sum));
      }
    }
  }
}

// `query` and `key`: the first of the warp's scores.
template <int kTiles>
__device__ __forceinline__ void drop_probabilities(const HeadMask& mask,
                                                   long query,
                                                   long key,
                                                   WarpSums<kTiles, kKeys>& probabilities) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      float factors[4];
      factors_by_queries(mask, query + 16 * t, key + 8 * n, factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        probabilities.at[t][n][i] *= factors[i];
      }
    }
  }
}

// A block: kQueries queries of one head against all keys that they see, kKeys at a time; while one tile of keys
// and values is used, the next is on its way. A warp keeps its queries and results in registers.
//
// 8 x 1,024 tokens of GPT-2 124M (12 heads of 64): 12.9 GFLOP (half of the score matrix), 50 MB moved; at
// 989 TFLOP/s 13 us, at 4.8 TB/s 10.5 us. mma.sync reaches some 60 % of the first, shared memory feeds about as much.
template <int kDim, bool kDrops>
__global__ void __launch_bounds__(kTileThreads, 2)
    forward_kernel(const ForwardArguments arguments) {
  constexpr int kTiles = ForwardTiles<kDim>::kTiles;
  constexpr int kQueries = ForwardTiles<kDim>::kQueries;
  constexpr int kWarpQueries = 16 * kTiles;
  LOCKSTEP_SHARED_MEMORY(ForwardTiles<kDim>, tiles);
  const AttentionSizes& sizes = arguments.sizes;
  const long batch = blockIdx.x / sizes.heads;
  const long head = blockIdx.x % sizes.heads;
  const long kv_head = head / (sizes.heads / sizes.kv_heads);
  const long sequence = batch * sizes.seq_length;
  // The longest blocks start first.
  const long first_query = static_cast<long>(gridDim.y - 1 - blockIdx.y) * kQueries;
  const int warp_row = static_cast<int>(threadIdx.x / 32) * kWarpQueries;
  const long warp_query = first_query + warp_row;
  const long key_blocks =
      ceil_div(min(first_query + kQueries, sizes.seq_length), static_cast<long>(kKeys));

  const auto load_keys = [&](long block) {
    const long first = block * kKeys;
    const long rows = sizes.seq_length - first;
    const HeadRows k = arguments.k.rows(sequence + first, kv_head, sizes.head_dim);
    const HeadRows v = arguments.v.rows(sequence + first, kv_head, sizes.head_dim);
    load_tile<kKeys, kDim>(tiles->k[block % 2], k, rows, sizes.head_dim);
    load_tile<kKeys, kDim>(tiles->v[block % 2], v, rows, sizes.head_dim);
    copy_async_commit();
  };
  load_tile<kQueries, kDim>(tiles->q,
                            arguments.q.rows(sequence + first_query, head, sizes.head_dim),
                            sizes.seq_length - first_query,
                            sizes.head_dim);
  load_keys(0);

  std::uint32_t queries[kTiles][kDim / 16][4];
  const auto load_queries = [&](std::uint32_t(&fragment)[4], int t, int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      fragment[i] = queries[t][step][i];
    }
  };
  const HeadMask mask = kDrops ? HeadMask(arguments.dropout, batch, head) : HeadMask();
  RunningSoftmax<kTiles> softmax;
  WarpSums<kTiles, kDim> result;
  clear(result);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    softmax.max[t][0] = softmax.max[t][1] = -INFINITY;
    softmax.sum[t][0] = softmax.sum[t][1] = 0.0F;
  }

  for (long block = 0; block < key_blocks; ++block) {
    copy_async_wait<0>();
    __syncthreads();  // the tiles are there, and nobody needs those before
    if (block + 1 < key_blocks) {
      load_keys(block + 1);
    }
    if (block == 0) {
      const LaneRow<kDim> lane_row = lane_row_by_rows<kDim>();
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int step = 0; step < kDim / 16; ++step) {
          load_matrix_x4(queries[t][step], lane_row.at(tiles->q, warp_row + 16 * t, step));
        }
      }
    }
    const long first_key = block * kKeys;
    if (first_key >= warp_query + kWarpQueries) {
      continue;  // later than all queries of this warp
    }
    WarpSums<kTiles, kKeys> scores;
    clear(scores);
    multiply_by_rows<kDim>(scores, load_queries, tiles->k[block % 2]);
    if (first_key + kKeys - 1 > warp_query) {
      const int offset = static_cast<int>(first_key - warp_query);
      for_each_sum(scores, [&](float& score, int query, int key) {
        score = key + offset > query ? -INFINITY : score;
      });
    }
    add_to_softmax(scores, sizes.scale_log2, softmax, result);
    if constexpr (kDrops) {
      drop_probabilities(mask, warp_query, first_key, scores);
    }
    multiply_weights(result, scores, tiles->v[block % 2]);
  }

  const long queries_left = sizes.seq_length - warp_query;
  float* log_sum_exp = arguments.log_sum_exp;
  if (log_sum_exp != nullptr) {
    log_sum_exp += static_cast<long>(blockIdx.x) * sizes.seq_length + warp_query;
  }
  finish_softmax(sizes, softmax, queries_left, log_sum_exp, result);
  store_sums(arguments.out.rows(sequence + warp_query, head, sizes.head_dim),
             tiles->q,
             result,
             queries_left,
             sizes.head_dim);
}

template <int kDim>
void launch_forward(CudaQueue& queue, const AttentionForward& op) {
  const long head_dim = op.shape.head_dim;
  ForwardArguments arguments;
  arguments.sizes = AttentionSizes(op.shape);
  arguments.q = {op.q, head_dim};
  arguments.k = {op.k, head_dim};
  arguments.v = {op.v, head_dim};
  arguments.out = {op.out, head_dim};
  arguments.log_sum_exp = op.log_sum_exp;
  arguments.dropout = op.dropout;
  const auto heads = static_cast<unsigned>(op.shape.batch * op.shape.heads);
  const auto blocks =
      static_cast<unsigned>(ceil_div(op.shape.seq_length, long{ForwardTiles<kDim>::kQueries}));
  launch_kernel(
      LaunchShape{dim3(heads, blocks), dim3(kTileThreads), sizeof(ForwardTiles<kDim>)},
      queue.stream(),
      op.dropout.source.drops() ? forward_kernel<kDim, true> : forward_kernel<kDim, false>,
      arguments);
}

}  // namespace

void run_on_cuda(CudaQueue& queue, const AttentionForward& op) {
  if (op.shape.batch * op.shape.heads * op.shape.seq_length == 0) {
    return;
  }
  if (!runs_on_tensor_cores(op.shape, op.q.dtype)) {
    run_plain_attention(queue, op);
  } else if (op.shape.head_dim <= 64) {
    launch_forward<64>(queue, op);
  } else {
    launch_forward<128>(queue, op);
  }
}

}  // namespace lockstep
