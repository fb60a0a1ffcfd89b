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

/// dq, dk and dv are written by two kernels that compute the scores once each, so that no sum needs atomics.
struct BackwardArguments {
  AttentionSizes sizes;
  AttentionOperand q;
  AttentionOperand k;
  AttentionOperand v;
  AttentionOperand dout;
  AttentionOperand dq;
  AttentionOperand dk;
  AttentionOperand dv;
  const float2* statistics = nullptr;  // attention_plain.h
  AttentionDropout dropout;

  __device__ __forceinline__ const float2* statistics_of(long batch, long head) const {
    const long padded = round_up(sizes.seq_length, kStatisticsMultiple);
    return statistics + (batch * sizes.heads + head) * padded;
  }
};

/// Rows of the operand that is streamed.
constexpr int kStreamed = 64;

// In: the score of a query and its key, and the gradient of the probability that met the value. Out: that probability, and
// the gradient of the score. `factor` is the mask's. The statistics hold with dropout, too: the sum of dout * out is over
// what was kept.
template <bool kDrops>
__device__ __forceinline__ void differentiate_softmax(bool hidden,
                                                      float scale_log2,
                                                      float2 statistics,
                                                      float factor,
                                                      float& score,
                                                      float& dprobability) {
  const float probability =
      hidden ? 0.0F : exp2_approximate(fmaf(score, scale_log2, -statistics.x));
  score = kDrops ? probability * factor : probability;
  const float dkept = kDrops ? dprobability * factor : dprobability;
  dprobability = probability * (dkept - statistics.y);
}

template <int kTiles, int kCols>
__device__ __forceinline__ void scale_sums(WarpSums<kTiles, kCols>& sums, float factor) {
  for_each_sum(sums, [factor](float& sum, int, int) { sum *= factor; });
}

template <int kDim>
struct KeyTiles {
  static constexpr int kTiles = kDim <= 64 ? 2 : 1;
  static constexpr int kKeys = 16 * kTiles * kTileWarps;

  std::uint16_t k[kKeys * kDim];
  std::uint16_t v[kKeys * kDim];
  std::uint16_t q[2][kStreamed * kDim];
  std::uint16_t dout[2][kStreamed * kDim];
  float2 statistics[2][kStreamed];
};

/// Queries whose scores are in registers at once: with more, registers would not do.
template <int kDim, bool kDrops>
constexpr int kQueriesAtOnce = kDim <= 64 || kDrops ? 16 : 32;

/// dk and dv of a warp's keys.
template <int kTiles, int kDim>
struct KeyGradients {
  WarpSums<kTiles, kDim> dk;
  WarpSums<kTiles, kDim> dv;
};

// Adds what kQueriesAtOnce queries from row `chunk` of the streamed tiles on give to the warp's keys, of which `warp_key` is the
// first. `offset`: the chunk's first query less that.
template <int kDim, bool kDrops>
__device__ __forceinline__ void add_to_keys(const KeyTiles<kDim>& tiles,
                                            int stage,
                                            int chunk,
                                            int offset,
                                            int warp_key,
                                            const HeadMask& mask,
                                            float scale_log2,
                                            KeyGradients<KeyTiles<kDim>::kTiles, kDim>& sums) {
  using Tiles = KeyTiles<kDim>;
  constexpr int kChunk = kQueriesAtOnce<kDim, kDrops>;
  const LaneRow<kDim> lane_row = lane_row_by_rows<kDim>();
  const int warp_row = static_cast<int>(threadIdx.x / 32) * 16 * Tiles::kTiles;
  const auto rows_of = [&](const std::uint16_t* tile) {
    return [=](std::uint32_t(&fragment)[4], int t, int step) {
      load_matrix_x4(fragment, lane_row.at(tile, warp_row + 16 * t, step));
    };
  };
  const std::uint16_t* const q = tiles.q[stage] + chunk * kDim;
  const std::uint16_t* const dout = tiles.dout[stage] + chunk * kDim;
  WarpSums<Tiles::kTiles, kChunk> probabilities;  // [keys x queries], scores at first
  WarpSums<Tiles::kTiles, kChunk> dscores;
  clear(probabilities);
  clear(dscores);
  multiply_by_rows<kDim>(probabilities, rows_of(tiles.k), q);
  multiply_by_rows<kDim>(dscores, rows_of(tiles.v), dout);

  const int pair = static_cast<int>(threadIdx.x % 4);
  const int group = static_cast<int>(threadIdx.x % 32 / 4);
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const int query = 8 * n + 2 * pair;
    const float4 both = *reinterpret_cast<const float4*>(&tiles.statistics[stage][chunk + query]);
    const float2 statistics[2] = {{both.x, both.y}, {both.z, both.w}};
#pragma unroll
    for (int t = 0; t < Tiles::kTiles; ++t) {
      float factors[4] = {};
      if constexpr (kDrops) {
        factors_by_keys(mask, warp_key + offset + 8 * n, warp_key + 16 * t, factors);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = 16 * t + group + 8 * (i / 2);
        differentiate_softmax<kDrops>(key > query + i % 2 + offset,
                                      scale_log2,
                                      statistics[i % 2],
                                      factors[i],
                                      probabilities.at[t][n][i],
                                      dscores.at[t][n][i]);
      }
    }
  }
  multiply_weights(sums.dv, probabilities, dout);
  multiply_weights(sums.dk, dscores, q);
}

// A block: kKeys keys of one kv head against the queries that see them, kStreamed at a time, of all heads of the
// group in turn. Everything is transposed, [keys x queries], so that probabilities are left operands as they leave
// the tensor cores; nothing but the operands goes through shared memory.
//
// 8 x 1,024 tokens of GPT-2 124M: 25.8 GFLOP, 26 us at 989 TFLOP/s; 76 MB moved, 16 us at 4.8 TB/s.
template <int kDim, bool kDrops>
__global__ void __launch_bounds__(kTileThreads, 2)
    key_gradients_kernel(const BackwardArguments arguments) {
  using Tiles = KeyTiles<kDim>;
  constexpr int kChunk = kQueriesAtOnce<kDim, kDrops>;
  LOCKSTEP_SHARED_MEMORY(Tiles, tiles);
  const AttentionSizes& sizes = arguments.sizes;
  const long batch = blockIdx.x / sizes.kv_heads;
  const long kv_head = blockIdx.x % sizes.kv_heads;
  const int group_size = sizes.heads / sizes.kv_heads;
  const long sequence = batch * sizes.seq_length;
  const long first_key = static_cast<long>(blockIdx.y) * Tiles::kKeys;
  const int warp_row = static_cast<int>(threadIdx.x / 32) * 16 * Tiles::kTiles;
  const int warp_key = static_cast<int>(first_key) + warp_row;
  const int first_block = static_cast<int>(first_key / kStreamed);
  const int blocks = static_cast<int>(ceil_div(sizes.seq_length, long{kStreamed}));
  const int turns = group_size * (blocks - first_block);

  const auto load_queries = [&](int stage, long head, int block) {
    const long first = static_cast<long>(block) * kStreamed;
    const long rows = sizes.seq_length - first;
    const HeadRows q = arguments.q.rows(sequence + first, head, sizes.head_dim);
    const HeadRows dout = arguments.dout.rows(sequence + first, head, sizes.head_dim);
    load_tile<kStreamed, kDim>(tiles->q[stage], q, rows, sizes.head_dim);
    load_tile<kStreamed, kDim>(tiles->dout[stage], dout, rows, sizes.head_dim);
    if (threadIdx.x < kStreamed / 2) {
      const float2* const statistics = arguments.statistics_of(batch, head) + first;
      copy_async_16(&tiles->statistics[stage][2 * threadIdx.x], statistics + 2 * threadIdx.x, 16);
    }
    copy_async_commit();
  };
  const long keys = sizes.seq_length - first_key;
  load_tile<Tiles::kKeys, kDim>(tiles->k,
                                arguments.k.rows(sequence + first_key, kv_head, sizes.head_dim),
                                keys,
                                sizes.head_dim);
  load_tile<Tiles::kKeys, kDim>(tiles->v,
                                arguments.v.rows(sequence + first_key, kv_head, sizes.head_dim),
                                keys,
                                sizes.head_dim);
  int head = static_cast<int>(kv_head) * group_size;
  int block = first_block;
  load_queries(0, head, block);

  HeadMask mask;
  KeyGradients<Tiles::kTiles, kDim> sums;
  clear(sums.dk);
  clear(sums.dv);
  for (int turn = 0; turn < turns; ++turn) {
    const int first_query = block * kStreamed;
    if constexpr (kDrops) {
      mask = HeadMask(arguments.dropout, batch, head);
    }
    if (++block == blocks) {
      block = first_block;
      ++head;
    }
    copy_async_wait<0>();
    __syncthreads();
    if (turn + 1 < turns) {
      load_queries((turn + 1) % 2, head, block);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kStreamed; chunk += kChunk) {
      const int offset = first_query + chunk - warp_key;
      if (offset + kChunk > 0) {  // else all queries come before the warp's keys
        add_to_keys<kDim, kDrops>(
            *tiles, turn % 2, chunk, offset, warp_key, mask, sizes.scale_log2, sums);
      }
    }
  }

  scale_sums(sums.dk, sizes.scale);
  store_sums(arguments.dk.rows(sequence + warp_key, kv_head, sizes.head_dim),
             tiles->k,
             sums.dk,
             sizes.seq_length - warp_key,
             sizes.head_dim);
  store_sums(arguments.dv.rows(sequence + warp_key, kv_head, sizes.head_dim),
             tiles->v,
             sums.dv,
             sizes.seq_length - warp_key,
             sizes.head_dim);
}

template <int kDim>
struct QueryTiles {
  static constexpr int kTiles = kDim <= 64 ? 2 : 1;
  static constexpr int kQueries = 16 * kTiles * kTileWarps;
  /// Keys whose scores are in registers at once.
  static constexpr int kChunk = kDim <= 64 ? 32 : 64;

  std::uint16_t q[kQueries * kDim];
  std::uint16_t dout[kQueries * kDim];
  std::uint16_t k[2][kStreamed * kDim];
  std::uint16_t v[2][kStreamed * kDim];
};

// Adds what kChunk keys from row `chunk` of the streamed tiles on give to the warp's queries, of which `warp_query` is the
// first. `offset`: the chunk's first key less that.
template <int kDim, bool kDrops>
__device__ __forceinline__ void add_to_queries(
    const QueryTiles<kDim>& tiles,
    int stage,
    int chunk,
    int offset,
    int warp_query,
    const HeadMask& mask,
    float scale_log2,
    const float2 (&statistics)[QueryTiles<kDim>::kTiles][2],
    WarpSums<QueryTiles<kDim>::kTiles, kDim>& dq) {
  using Tiles = QueryTiles<kDim>;
  const LaneRow<kDim> lane_row = lane_row_by_rows<kDim>();
  const int warp_row = static_cast<int>(threadIdx.x / 32) * 16 * Tiles::kTiles;
  const auto rows_of = [&](const std::uint16_t* tile) {
    return [=](std::uint32_t(&fragment)[4], int t, int step) {
      load_matrix_x4(fragment, lane_row.at(tile, warp_row + 16 * t, step));
    };
  };
  const std::uint16_t* const k = tiles.k[stage] + chunk * kDim;
  WarpSums<Tiles::kTiles, Tiles::kChunk> probabilities;  // scores at first
  WarpSums<Tiles::kTiles, Tiles::kChunk> dscores;
  clear(probabilities);
  clear(dscores);
  multiply_by_rows<kDim>(probabilities, rows_of(tiles.q), k);
  multiply_by_rows<kDim>(dscores, rows_of(tiles.dout), tiles.v[stage] + chunk * kDim);

  const int pair = static_cast<int>(threadIdx.x % 4);
  const int group = static_cast<int>(threadIdx.x % 32 / 4);
#pragma unroll
  for (int t = 0; t < Tiles::kTiles; ++t) {
#pragma unroll
    for (int n = 0; n < Tiles::kChunk / 8; ++n) {
      float factors[4] = {};
      if constexpr (kDrops) {
        factors_by_queries(mask, warp_query + 16 * t, warp_query + offset + 8 * n, factors);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = 16 * t + group + 8 * (i / 2);
        differentiate_softmax<kDrops>(8 * n + 2 * pair + i % 2 + offset > query,
                                      scale_log2,
                                      statistics[t][i / 2],
                                      factors[i],
                                      probabilities.at[t][n][i],
                                      dscores.at[t][n][i]);
      }
    }
  }
  multiply_weights(dq, dscores, k);
}

// A block: kQueries queries of one head against all keys that they see, kStreamed at a time.
//
// 8 x 1,024 tokens of GPT-2 124M: 19.3 GFLOP, 20 us at 989 TFLOP/s; 63 MB moved, 13 us at 4.8 TB/s.
template <int kDim, bool kDrops>
__global__ void __launch_bounds__(kTileThreads, 2)
    query_gradients_kernel(const BackwardArguments arguments) {
  using Tiles = QueryTiles<kDim>;
  constexpr int kWarpQueries = 16 * Tiles::kTiles;
  LOCKSTEP_SHARED_MEMORY(Tiles, tiles);
  const AttentionSizes& sizes = arguments.sizes;
  const long batch = blockIdx.x / sizes.heads;
  const long head = blockIdx.x % sizes.heads;
  const long kv_head = head / (sizes.heads / sizes.kv_heads);
  const long sequence = batch * sizes.seq_length;
  // The longest blocks start first.
  const long first_query = static_cast<long>(gridDim.y - 1 - blockIdx.y) * Tiles::kQueries;
  const int warp_row = static_cast<int>(threadIdx.x / 32) * kWarpQueries;
  const int warp_query = static_cast<int>(first_query) + warp_row;
  const auto key_blocks = static_cast<int>(
      ceil_div(min(first_query + Tiles::kQueries, sizes.seq_length), long{kStreamed}));

  const auto load_keys = [&](int block) {
    const long first = static_cast<long>(block) * kStreamed;
    const long rows = sizes.seq_length - first;
    const HeadRows k = arguments.k.rows(sequence + first, kv_head, sizes.head_dim);
    const HeadRows v = arguments.v.rows(sequence + first, kv_head, sizes.head_dim);
    load_tile<kStreamed, kDim>(tiles->k[block % 2], k, rows, sizes.head_dim);
    load_tile<kStreamed, kDim>(tiles->v[block % 2], v, rows, sizes.head_dim);
    copy_async_commit();
  };
  const long queries = sizes.seq_length - first_query;
  load_tile<Tiles::kQueries, kDim>(tiles->q,
                                   arguments.q.rows(sequence + first_query, head, sizes.head_dim),
                                   queries,
                                   sizes.head_dim);
  load_tile<Tiles::kQueries, kDim>(
      tiles->dout,
      arguments.dout.rows(sequence + first_query, head, sizes.head_dim),
      queries,
      sizes.head_dim);
  load_keys(0);

  float2 statistics[Tiles::kTiles][2];
#pragma unroll
  for (int t = 0; t < Tiles::kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * t + static_cast<int>(threadIdx.x % 32 / 4) + 8 * half;
      statistics[t][half] = arguments.statistics_of(batch, head)[warp_query + row];
    }
  }
  const HeadMask mask = kDrops ? HeadMask(arguments.dropout, batch, head) : HeadMask();
  WarpSums<Tiles::kTiles, kDim> dq;
  clear(dq);
  for (int block = 0; block < key_blocks; ++block) {
    copy_async_wait<0>();
    __syncthreads();
    if (block + 1 < key_blocks) {
      load_keys(block + 1);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kStreamed; chunk += Tiles::kChunk) {
      const int offset = block * kStreamed + chunk - warp_query;
      if (offset < kWarpQueries) {  // else all keys come after the warp's queries
        add_to_queries<kDim, kDrops>(
            *tiles, block % 2, chunk, offset, warp_query, mask, sizes.scale_log2, statistics, dq);
      }
    }
  }

  scale_sums(dq, sizes.scale);
  store_sums(arguments.dq.rows(sequence + warp_query, head, sizes.head_dim),
             tiles->q,
             dq,
             sizes.seq_length - warp_query,
             sizes.head_dim);
}

__device__ __forceinline__ float to_f32(float value) {
  return value;
}
__device__ __forceinline__ float to_f32(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16U);
}

struct StatisticsArguments {
  AttentionSizes sizes;
  const void* out = nullptr;
  long out_stride = 0;
  const void* dout = nullptr;
  long dout_stride = 0;
  bool aligned = false;  ///< pieces of both start on a multiple of 16 bytes
  const float* log_sum_exp = nullptr;
  float2* statistics = nullptr;
  long batch = 0;
};

constexpr int kStatisticsThreads = 256;
/// Lanes that share a row of a head.
constexpr int kLanesPerRow = 8;

// One row of a head for eight lanes, which take pieces of it in turn; neighbouring heads of a token lie beside each
// other. 8 x 1,024 tokens of GPT-2 124M: 25 MB read, 1.6 MB moved beside it: 5.6 us at 4.8 TB/s.
template <typename T>
__global__ void __launch_bounds__(kStatisticsThreads)
    statistics_kernel(const StatisticsArguments arguments) {
  constexpr int kPiece = 16 / sizeof(T);
  const AttentionSizes& sizes = arguments.sizes;
  const long padded = round_up(sizes.seq_length, kStatisticsMultiple);
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerRow;
  const long row =
      (static_cast<long>(blockIdx.x) * kStatisticsThreads + threadIdx.x) / kLanesPerRow;
  const long head = row % sizes.heads;
  const long token = row / sizes.heads % padded;
  const long batch = row / sizes.heads / padded;
  const bool exists = batch < arguments.batch && token < sizes.seq_length;
  float sum = 0.0F;
  if (exists) {
    const long global_row = batch * sizes.seq_length + token;
    const T* const out = static_cast<const T*>(arguments.out) + global_row * arguments.out_stride +
                         head * sizes.head_dim;
    const T* const dout = static_cast<const T*>(arguments.dout) +
                          global_row * arguments.dout_stride + head * sizes.head_dim;
    for (int first = lane * kPiece; first < sizes.head_dim; first += kLanesPerRow * kPiece) {
      union Piece {
        uint4 vector;
        T values[kPiece];
      };
      Piece a;
      Piece b;
      if (arguments.aligned) {
        a.vector = *reinterpret_cast<const uint4*>(out + first);
        b.vector = *reinterpret_cast<const uint4*>(dout + first);
      } else {
#pragma unroll
        for (int i = 0; i < kPiece; ++i) {
          a.values[i] = first + i < sizes.head_dim ? out[first + i] : T{0};
          b.values[i] = first + i < sizes.head_dim ? dout[first + i] : T{0};
        }
      }
#pragma unroll
      for (int i = 0; i < kPiece; ++i) {
        sum = fmaf(to_f32(a.values[i]), to_f32(b.values[i]), sum);
      }
    }
  }
#pragma unroll
  for (int distance = 1; distance < kLanesPerRow; distance *= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  }
  if (lane == 0 && batch < arguments.batch) {
    float2 statistics = {INFINITY, 0.0F};
    if (exists) {
      const float log_sum_exp =
          arguments.log_sum_exp[(batch * sizes.heads + head) * sizes.seq_length + token];
      statistics = {log_sum_exp * static_cast<float>(AttentionSizes::kLog2E), sum};
    }
    arguments.statistics[(batch * sizes.heads + head) * padded + token] = statistics;
  }
}

void launch_statistics(CudaQueue& queue, const AttentionBackward& op, float2* statistics) {
  const auto aligned = [&](const Matrix& matrix) {
    const long piece = 16 / static_cast<long>(size_of(matrix.dtype));
    return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % piece == 0 &&
           op.shape.head_dim % piece == 0;
  };
  StatisticsArguments arguments;
  arguments.sizes = AttentionSizes(op.shape);
  arguments.out = op.out.data;
  arguments.out_stride = op.out.stride;
  arguments.dout = op.dout.data;
  arguments.dout_stride = op.dout.stride;
  arguments.aligned = aligned(op.out) && aligned(op.dout);
  arguments.log_sum_exp = op.log_sum_exp;
  arguments.statistics = statistics;
  arguments.batch = op.shape.batch;
  const long rows =
      op.shape.batch * op.shape.heads * round_up(op.shape.seq_length, kStatisticsMultiple);
  const LaunchShape shape{
      dim3(static_cast<unsigned>(ceil_div(rows * kLanesPerRow, long{kStatisticsThreads}))),
      dim3(kStatisticsThreads)};
  launch_kernel(
      shape,
      queue.stream(),
      op.q.dtype == DType::kBF16 ? statistics_kernel<std::uint16_t> : statistics_kernel<float>,
      arguments);
}

template <int kDim, bool kDrops>
void launch_backward(CudaQueue& queue, const AttentionBackward& op, const float2* statistics) {
  const AttentionShape& shape = op.shape;
  BackwardArguments arguments;
  arguments.sizes = AttentionSizes(shape);
  arguments.q = {op.q, shape.head_dim};
  arguments.k = {op.k, shape.head_dim};
  arguments.v = {op.v, shape.head_dim};
  arguments.dout = {op.dout, shape.head_dim};
  arguments.dq = {op.dq, shape.head_dim};
  arguments.dk = {op.dk, shape.head_dim};
  arguments.dv = {op.dv, shape.head_dim};
  arguments.statistics = statistics;
  arguments.dropout = op.dropout;
  const auto grid = [&](long heads, int rows) {
    return dim3(static_cast<unsigned>(shape.batch * heads),
                static_cast<unsigned>(ceil_div(shape.seq_length, long{rows})));
  };
  launch_kernel(
      LaunchShape{
          grid(shape.kv_heads, KeyTiles<kDim>::kKeys), dim3(kTileThreads), sizeof(KeyTiles<kDim>)},
      queue.stream(),
      key_gradients_kernel<kDim, kDrops>,
      arguments);
  launch_kernel(LaunchShape{grid(shape.heads, QueryTiles<kDim>::kQueries),
                            dim3(kTileThreads),
                            sizeof(QueryTiles<kDim>)},
                queue.stream(),
                query_gradients_kernel<kDim, kDrops>,
                arguments);
}

}  // namespace

void run_on_cuda(CudaQueue& queue, const AttentionBackward& op) {
  if (op.shape.batch * op.shape.heads * op.shape.seq_length == 0) {
    return;
  }
  auto* const statistics = reinterpret_cast<float2*>(queue.workspace(op.cuda_workspace_bytes()));
  launch_statistics(queue, op, statistics);
  const bool drops = op.dropout.source.drops();
  if (!runs_on_tensor_cores(op.shape, op.q.dtype)) {
    run_plain_attention(queue, op, statistics);
  } else if (op.shape.head_dim <= 64) {
    (drops ? launch_backward<64, true> : launch_backward<64, false>)(queue, op, statistics);
  } else {
    (drops ? launch_backward<128, true> : launch_backward<128, false>)(queue, op, statistics);
  }
}

}  // namespace lockstep
