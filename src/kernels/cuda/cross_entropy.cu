// Softmax and cross entropy over one chunk of logits. Times are of an H200 (4.8 TB/s) and 8 x 1024 rows of 50,304
// columns, gradients in bf16.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/bfloat16.h"
#include "device/cuda/launch.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lockstep {
namespace {

constexpr int kWidth = 4;
constexpr long kMostThreads = 512;
constexpr int kMostRowWarps = kMostThreads / kWarpSize;
constexpr long kElementsOfThread = 16;
constexpr long kCachedColumns = 22'528;  // 88 KiB: two blocks a multiprocessor

// A row of logits as a kernel sees it: `blocks` blocks of columns, `classes` of which are no padding.
struct LogitRows {
  Rows<const float> logits;
  long rows;
  long cols;
  long classes;
  long first_class;
  int blocks;
  const std::int32_t* targets;

  explicit LogitRows(const SoftmaxCrossEntropy& op)
      : logits(op.logits),
        rows(op.logits.rows),
        cols(op.logits.cols),
        classes(op.own_classes()),
        first_class(op.first_class),
        blocks(op.blocks),
        targets(op.targets) {}
  [[nodiscard]] __device__ __forceinline__ long block_cols() const { return cols / blocks; }
  /// Column of the target, -1 if it is not here.
  [[nodiscard]] __device__ __forceinline__ long own_target(long target) const {
    const long own = target - first_class;
    return target >= 0 && own >= 0 && own < classes ? own : -1;
  }
};

struct Shared {
  float maxima[kMostRowWarps];
  std::int32_t indices[kMostRowWarps];
  float warp_sums[kMaxBlocks][kMostRowWarps];
  float block_sums[kMaxBlocks];
  float cached[4];  // as many as the launch says
};

constexpr std::size_t kSharedBytes = offsetof(Shared, cached);
static_assert(kSharedBytes % 16 == 0);

// Calls body(first column, columns up to kWidth) for a thread's vectors of the classes of one block: how they are dealt
// out depends on the block's size alone, so that a block has the same bits on whichever rank it lies.
template <typename Body>
__device__ __forceinline__ void for_own_classes(const LogitRows& of, int block, const Body& body) {
  const long first = block * of.block_cols();
  const long end = min(first + of.block_cols(), of.classes);
  const long step = static_cast<long>(blockDim.x) * kWidth;
#pragma unroll 4
  for (long col = first + static_cast<long>(threadIdx.x) * kWidth; col < end; col += step) {
    body(col, static_cast<int>(min(end - col, static_cast<long>(kWidth))));
  }
}

// Values of the first columns that this thread has, kept in shared memory between passes. No other thread reads them.
template <bool kAligned>
struct RowCache {
  float* values;
  long cols;  // 0 without vectors

  [[nodiscard]] __device__ __forceinline__ bool has(long col, int count) const {
    return kAligned && count == kWidth && col + kWidth <= cols;
  }
  [[nodiscard]] __device__ __forceinline__ Floats<kWidth> load(long col) const {
    return load_whole<kWidth>(values + col);
  }
  __device__ __forceinline__ void store(const Floats<kWidth>& value, long col) const {
    store_whole(value, values + col);
  }
};

struct Largest {
  float value = -std::numeric_limits<float>::infinity();
  std::int32_t index = std::numeric_limits<std::int32_t>::max();  // the first of equals

  __device__ __forceinline__ void join(float other, std::int32_t at) {
    if (other > value || (other == value && at < index)) {  // no NaN is larger
      value = other;
      index = at;
    }
  }
};

// All threads get the row's.
__device__ __forceinline__ Largest largest_of_row(Largest own, Shared* shared) {
  const auto join_lanes = [&] {
#pragma unroll
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      const float value = __shfl_xor_sync(kAllLanes, own.value, step);
      const std::int32_t index = __shfl_xor_sync(kAllLanes, own.index, step);
      own.join(value, index);
    }
  };
  join_lanes();
  if (blockDim.x > kWarpSize) {
    const unsigned lane = threadIdx.x % kWarpSize;
    if (lane == 0) {
      shared->maxima[threadIdx.x / kWarpSize] = own.value;
      shared->indices[threadIdx.x / kWarpSize] = own.index;
    }
    __syncthreads();
    const bool has_warp = lane < blockDim.x / kWarpSize;
    own = Largest{};
    if (has_warp) {
      own = Largest{shared->maxima[lane], shared->indices[lane]};
    }
    join_lanes();
  }
  return own;
}

template <bool kAligned>
__device__ __forceinline__ Largest
find_largest(const LogitRows& of, long row, const RowCache<kAligned>& cache, Shared* shared) {
  Largest largest;
  for (int block = 0; block < of.blocks; ++block) {
    for_own_classes(of, block, [&](long col, int count) {
      const Floats<kWidth> value = load_floats<kAligned, kWidth>(of.logits.at(row, col), count);
      if (cache.has(col, count)) {
        cache.store(value, col);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (i < count && value.at[i] > largest.value) {  // a thread's columns ascend
          largest = Largest{value.at[i], static_cast<std::int32_t>(col + i)};
        }
      }
    });
  }
  return largest_of_row(largest, shared);
}

// shared->block_sums[b] = the sum over block b of e^(logit - largest); cached columns hold the powers afterwards.
template <bool kAligned>
__device__ __forceinline__ void sum_blocks(
    const LogitRows& of, long row, float largest, const RowCache<kAligned>& cache, Shared* shared) {
  const unsigned lane = threadIdx.x % kWarpSize;
  for (int block = 0; block < of.blocks; ++block) {
    float sum = 0.0F;
    for_own_classes(of, block, [&](long col, int count) {
      const bool is_cached = cache.has(col, count);
      Floats<kWidth> value = is_cached
                                 ? cache.load(col)
                                 : load_floats<kAligned, kWidth>(of.logits.at(row, col), count);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        value.at[i] = i < count ? expf(value.at[i] - largest) : 0.0F;
      }
      if (is_cached) {
        cache.store(value, col);
      }
      sum += (value.at[0] + value.at[1]) + (value.at[2] + value.at[3]);
    });
    sum = warp_sum(sum);
    if (lane == 0) {
      shared->warp_sums[block][threadIdx.x / kWarpSize] = sum;
    }
  }
  __syncthreads();
  for (int block = static_cast<int>(threadIdx.x); block < of.blocks;
       block += static_cast<int>(blockDim.x)) {
    float sum = 0.0F;
    for (int warp = 0; warp < static_cast<int>(blockDim.x / kWarpSize); ++warp) {
      sum += shared->warp_sums[block][warp];
    }
    shared->block_sums[block] = sum;
  }
  __syncthreads();
}

// What the softmax of a row is made of.
struct RowSoftmax {
  float largest = 0.0F;
  float sum = 0.0F;
  float target_logit = 0.0F;
};

// The same from what all ranks of a split vocabulary said.
__device__ __forceinline__ RowSoftmax gathered_softmax(const LogitRows& of,
                                                       const ClassStatistics& statistics,
                                                       long row,
                                                       long target) {
  const float* const sums = statistics.sums + row;
  const long part_size = (of.blocks + 1) * of.rows;
  RowSoftmax softmax;
  softmax.largest = statistics.maxima[row];
  softmax.sum = tree_sum<4, 4>(statistics.parts * of.blocks, [&](int block) {
    return sums[block / of.blocks * part_size + block % of.blocks * of.rows];
  });
  const long holder = target / of.cols;  // every rank has as many columns
  softmax.target_logit = sums[holder * part_size + of.blocks * of.rows];
  return softmax;
}

struct CrossEntropyOutputs {
  float scale;
  float* losses;
  std::int32_t* predictions;
  ClassStatistics statistics;
};

// Fills a row of dlogits.
template <typename Out, bool kAligned>
__device__ __forceinline__ void write_gradient(const LogitRows& of,
                                               long row,
                                               const RowSoftmax& softmax,
                                               float scale,
                                               const RowCache<kAligned>& cache,
                                               const Rows<Out>& out) {
  const float divisor = 1.0F / softmax.sum;
  const long own_target = of.own_target(of.targets[row]);
  for (int block = 0; block < of.blocks; ++block) {
    for_own_classes(of, block, [&](long col, int count) {
      Floats<kWidth> value;
      if (cache.has(col, count)) {
        value = cache.load(col);
      } else {
        value = load_floats<kAligned, kWidth>(of.logits.at(row, col), count);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          value.at[i] = expf(value.at[i] - softmax.largest);
        }
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float probability = value.at[i] * divisor;
        value.at[i] = (col + i == own_target ? probability - 1.0F : probability) * scale;
      }
      store_floats<kAligned>(value, out.at(row, col), count);
    });
  }
  for (long col = of.classes + threadIdx.x; col < of.cols; col += blockDim.x) {
    *out.at(row, col) = element_of<Out>(0.0F);
  }
}

// A block takes one row. Three passes: the largest logit, the sum of powers, the gradient; the first kCachedColumns
// columns are read once, the others come from the L2 cache the second and third time. With statistics of a split
// vocabulary only the last. 1.65 GB read, 0.82 GB written: 0.52 ms; some 12 instructions an element in either pass with
// powers, of which the cache saves nearly half of one: 0.25 ms at 33 T instructions/s.
template <typename Out, bool kAligned>
__global__ void __launch_bounds__(kMostThreads, 2)
    cross_entropy(LogitRows of, CrossEntropyOutputs to, Rows<Out> dlogits, long cached_cols) {
  LOCKSTEP_SHARED_MEMORY(Shared, shared);
  const RowCache<kAligned> cache = {shared->cached, cached_cols};
  const long row = blockIdx.x;
  const long target = of.targets[row];
  RowSoftmax softmax;
  if (to.statistics.parts > 0) {
    if (target >= 0) {
      softmax = gathered_softmax(of, to.statistics, row, target);
    }
  } else if (target >= 0 || to.predictions != nullptr) {
    softmax.target_logit =
        target >= 0 ? *of.logits.at(row, target) : 0.0F;  // before dlogits replace it
    const Largest largest = find_largest(of, row, cache, shared);
    softmax.largest = largest.value;
    if (to.predictions != nullptr && threadIdx.x == 0) {
      const bool found = largest.index != std::numeric_limits<std::int32_t>::max();
      to.predictions[row] = found ? largest.index : 0;
    }
    if (target >= 0) {
      sum_blocks(of, row, largest.value, cache, shared);
      softmax.sum = tree_sum<4, 4>(of.blocks, [&](int block) { return shared->block_sums[block]; });
    }
  }
  if (threadIdx.x == 0) {
    to.losses[row] = target < 0 ? 0.0F
                                : static_cast<float>(log(static_cast<double>(softmax.sum)) +
                                                     static_cast<double>(softmax.largest) -
                                                     static_cast<double>(softmax.target_logit));
  }
  if (dlogits.data == nullptr) {
    return;
  }
  if (target >= 0) {
    write_gradient<Out>(of, row, softmax, to.scale, cache, dlogits);
    return;
  }
  for (long col = threadIdx.x; col < of.cols; col += blockDim.x) {
    *dlogits.at(row, col) = element_of<Out>(0.0F);
  }
}

// Reads the logits: 0.34 ms.
template <bool kAligned>
__global__ void __launch_bounds__(kMostThreads) class_maxima(LogitRows of, float* maxima) {
  LOCKSTEP_SHARED_MEMORY(Shared, shared);
  const long row = blockIdx.x;
  const Largest largest = find_largest(of, row, RowCache<kAligned>{nullptr, 0}, shared);
  if (threadIdx.x == 0) {
    maxima[row] = largest.value;
  }
}

// Reads the logits: 0.34 ms.
template <bool kAligned>
__global__ void __launch_bounds__(kMostThreads)
    class_sums(LogitRows of, const float* maxima, int num_parts, float* to_largest, float* sums) {
  LOCKSTEP_SHARED_MEMORY(Shared, shared);
  const long row = blockIdx.x;
  const long target = of.targets[row];
  float largest = maxima[row];
  for (int part = 1; part < num_parts; ++part) {
    largest = fmaxf(largest, maxima[part * of.rows + row]);
  }
  if (target >= 0) {
    sum_blocks(of, row, largest, RowCache<kAligned>{nullptr, 0}, shared);
  }
  for (long block = threadIdx.x; block < of.blocks; block += blockDim.x) {
    sums[block * of.rows + row] = target < 0 ? 0.0F : shared->block_sums[block];
  }
  if (threadIdx.x == 0) {
    to_largest[row] = largest;
    const long own_target = of.own_target(target);
    sums[of.blocks * of.rows + row] = own_target >= 0 ? *of.logits.at(row, own_target) : 0.0F;
  }
}

LaunchShape row_shape(const SoftmaxCrossEntropy& op, long cached_cols) {
  return {dim3(static_cast<unsigned>(op.logits.rows)),
          dim3(row_threads(op.logits.cols / op.blocks, kElementsOfThread, kMostThreads)),
          kSharedBytes + static_cast<std::size_t>(cached_cols) * sizeof(float)};
}

bool are_logits_aligned(const SoftmaxCrossEntropy& op) {
  return is_aligned(op.logits, kWidth) &&
         (op.blocks == 1 || op.logits.cols / op.blocks % kWidth == 0);
}

template <typename Out>
void run(CudaQueue& queue, const SoftmaxCrossEntropy& op) {
  with_flag(are_logits_aligned(op) && is_aligned(op.dlogits, kWidth), [&](auto aligned) {
    constexpr bool kAligned = decltype(aligned)::value;
    const bool caches = kAligned && op.statistics.parts == 0;
    const long cached_cols = caches ? std::min(op.logits.cols, kCachedColumns) : 0;
    launch_kernel(row_shape(op, cached_cols),
                  queue.stream(),
                  cross_entropy<Out, kAligned>,
                  LogitRows(op),
                  CrossEntropyOutputs{op.scale, op.losses, op.predictions, op.statistics},
                  Rows<Out>(op.dlogits),
                  cached_cols);
  });
}

}  // namespace

void run_on_cuda(CudaQueue& queue, const SoftmaxCrossEntropy& op) {
  if (op.logits.rows == 0) {
    return;
  }
  with_type(op.dlogits.dtype, [&](auto out) { run<decltype(out)>(queue, op); });
}

void run_on_cuda(CudaQueue& queue, const ClassMaxima& op) {
  if (op.of.logits.rows == 0) {
    return;
  }
  with_flag(are_logits_aligned(op.of), [&](auto aligned) {
    launch_kernel(row_shape(op.of, 0),
                  queue.stream(),
                  class_maxima<decltype(aligned)::value>,
                  LogitRows(op.of),
                  op.maxima);
  });
}

void run_on_cuda(CudaQueue& queue, const ClassSums& op) {
  if (op.of.logits.rows == 0) {
    return;
  }
  with_flag(are_logits_aligned(op.of), [&](auto aligned) {
    launch_kernel(row_shape(op.of, 0),
                  queue.stream(),
                  class_sums<decltype(aligned)::value>,
                  LogitRows(op.of),
                  op.maxima,
                  op.num_parts,
                  op.largest,
                  op.sums);
  });
}

}  // namespace lockstep
