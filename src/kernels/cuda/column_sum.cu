// Sums over tokens: gradients of biases, and the second half of those of gains.
#include "base/bfloat16.h"
#include "device/cuda/launch.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/cuda/token_sums.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

constexpr int kMostPieceThreads = 128;
constexpr int kPieceLevels = 12;  // 33 million rows of a block in pieces of 32
constexpr int kBlockLevels = 6;
static_assert(kMaxBlocks <= 1 << kBlockLevels);

// A block takes one piece of rows, a thread a vector of columns: rows in their order, all loads under way together. 8 x
// 1024 tokens, 768 features in bf16: 13 MB, 2.6 us at 4.8 TB/s.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kMostPieceThreads)
    sum_pieces(Rows<const T> x, long cols, TokenRows rows, float* partials) {
  constexpr int kWidth = kVectorWidth<T>;
  const long slot = blockIdx.x;
  const long block = slot / rows.pieces_apart();
  const IndexRange piece = rows.piece(block, slot % rows.pieces_apart());
  const long col = (static_cast<long>(blockIdx.y) * blockDim.x + threadIdx.x) * kWidth;
  if (piece.size() == 0 || col >= cols) {
    return;
  }
  const int count = static_cast<int>(min(cols - col, static_cast<long>(kWidth)));
  TokenRows::Walk walk(rows, block, piece.begin);
  Floats<kWidth> sum = zeros<kWidth>();
#pragma unroll 8
  for (long i = piece.begin; i < piece.end; ++i) {
    sum = sum + load_floats<kAligned, kWidth>(x.at(walk.row(), col), count);
    walk.advance();
  }
  // Not by vectors: a row of partial sums starts anywhere.
  store_floats<false>(sum, partials + slot * cols + col, count);
}

struct Transposed {
  float at[kWarpSize][kWarpSize + 1];
};

// The tree over the pieces of a block for 32 columns, by 32 warps: warp w has the subtree of the pieces [w size, (w + 1)
// size) of all columns, size a power of two; then warp c joins the subtrees of column c. The sum of column c is in lane
// 0 of warp c.
__device__ __forceinline__ float sum_of_block(const TokenRows& rows,
                                              long block,
                                              const float* partials,
                                              long stride,
                                              bool has_column,
                                              Transposed* shared) {
  const auto pieces = static_cast<int>(rows.pieces_of(block));
  const auto lane = static_cast<int>(threadIdx.x);
  const auto warp = static_cast<int>(threadIdx.y);
  int size = 1;
  while (size * kWarpSize < pieces) {
    size *= 2;
  }
  const int first = warp * size;
  const int count = min(pieces - first, size);
  float sum = 0.0F;
  if (has_column && count > 0) {
    const float* const from = partials + (block * rows.pieces_apart() + first) * stride;
    sum = tree_sum<8, kPieceLevels>(count, [&](int piece) { return from[piece * stride]; });
  }
  __syncthreads();
  shared->at[warp][lane] = sum;
  __syncthreads();
  sum = shared->at[lane][warp];
  const int subtrees = ceil_div(pieces, size);
#pragma unroll
  for (int step = 1; step < kWarpSize; step *= 2) {
    const float right = __shfl_down_sync(kAllLanes, sum, static_cast<unsigned>(step));
    if (lane % (2 * step) == 0 && lane + step < subtrees) {
      sum += right;
    }
  }
  return sum;
}

__global__ void __launch_bounds__(kWarpSize* kWarpSize)
    combine(TokenRows rows, const float* partials, long cols, TokenSums sums) {
  LOCKSTEP_SHARED_MEMORY(Transposed, shared);
  const long num_sums = gridDim.y;
  const long first = static_cast<long>(blockIdx.x) * kWarpSize;
  const long col = first + threadIdx.x;
  const float* const from = partials + blockIdx.y * cols + col;
  const float sum = tree_sum<1, kBlockLevels>(rows.num_blocks(), [&](int block) {
    return sum_of_block(rows, block, from, num_sums * cols, col < cols, shared);
  });
  const long own = first + threadIdx.y;
  if (threadIdx.x == 0 && own < cols) {
    float* const to = (blockIdx.y == 0 ? sums.to[0] : sums.to[1]) + own;
    *to = sums.accumulate ? *to + sum : sum;
  }
}

template <typename T>
void start_pieces(CudaQueue& queue, const ColumnSum& op, const TokenRows& rows, float* partials) {
  constexpr int kWidth = kVectorWidth<T>;
  const long vectors = ceil_div(op.x.cols, long{kWidth});
  const unsigned threads = row_threads(vectors, 1, kMostPieceThreads);
  const dim3 grid(static_cast<unsigned>(rows.num_slots()),
                  static_cast<unsigned>(ceil_div(vectors, long{threads})));
  with_flag(is_aligned(op.x, kWidth), [&](auto aligned) {
    launch_kernel({grid, dim3(threads)},
                  queue.stream(),
                  sum_pieces<T, decltype(aligned)::value>,
                  Rows<const T>(op.x),
                  op.x.cols,
                  rows,
                  partials);
  });
}

}  // namespace

void combine_token_sums(cudaStream_t stream,
                        const TokenRows& rows,
                        const float* partials,
                        long cols,
                        const TokenSums& sums) {
  const dim3 grid(static_cast<unsigned>(ceil_div(cols, long{kWarpSize})),
                  sums.to[1] == nullptr ? 1 : 2);
  launch_kernel({grid, dim3(kWarpSize, kWarpSize), sizeof(Transposed)},
                stream,
                combine,
                rows,
                partials,
                cols,
                sums);
}

void run_on_cuda(CudaQueue& queue, const ColumnSum& op) {
  if (op.x.cols == 0) {
    return;
  }
  const TokenRows rows = column_sum_rows(op.x.rows, op.token_blocks);
  auto* const partials = reinterpret_cast<float*>(queue.workspace(op.cuda_workspace_bytes()));
  if (rows.num_slots() > 0) {
    with_type(op.x.dtype,
              [&](auto element) { start_pieces<decltype(element)>(queue, op, rows, partials); });
  }
  combine_token_sums(queue.stream(), rows, partials, op.x.cols, {{op.out, nullptr}, op.accumulate});
}

}  // namespace lockstep
