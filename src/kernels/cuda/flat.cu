// Kernels over ranges of the flat buffers. Times are of an H200 (4.8 TB/s) and the 124 M parameters of GPT-2.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/bfloat16.h"
#include "base/integers.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda/launch.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;

// Four elements of a range: neighbours, or, where vectors cannot be accessed as wholes, kThreads apart, so that the
// threads of a warp access neighbours.
template <bool kAligned>
struct FlatPart {
  long first;
  long end;

  __device__ explicit FlatPart(long count)
      : first(static_cast<long>(blockIdx.x) * kThreads * kWidth +
              threadIdx.x * (kAligned ? kWidth : 1)),
        end(count) {}
  [[nodiscard]] __device__ long index(int i) const { return first + i * (kAligned ? 1 : kThreads); }
  [[nodiscard]] __device__ bool is_whole() const { return kAligned && first + kWidth <= end; }

  template <typename T>
  [[nodiscard]] __device__ Floats<kWidth> load(const T* from) const {
    if (is_whole()) {
      return load_whole<kWidth>(from + first);
    }
    Floats<kWidth> values;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values.at[i] = index(i) < end ? value_of(from[index(i)]) : 0.0F;
    }
    return values;
  }
  template <typename T>
  __device__ void store(const Floats<kWidth>& values, T* to) const {
    if (is_whole()) {
      store_whole(values, to + first);
      return;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (index(i) < end) {
        to[index(i)] = element_of<T>(values.at[i]);
      }
    }
  }
};

LaunchShape flat_shape(long count) {
  return {dim3(static_cast<unsigned>(ceil_div(count, long{kThreads} * kWidth))), dim3(kThreads)};
}

bool is_aligned_f32(const void* data) {
  return is_aligned(data, DType::kF32, kWidth);
}

bool is_aligned_bf16(const void* data) {
  return is_aligned(data, DType::kBF16, kWidth);
}

// 6 bytes an element: 0.16 ms.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads) cast(const float* from, BFloat16* to, long count) {
  const FlatPart<kAligned> part(count);
  part.store(part.load(from), to);
}

struct AdamWNumbers {
  float scale;
  float decay;
  float beta1;
  float beta2;
  float rest1;
  float rest2;
  float step;
  float correction2;
  float epsilon;
};

struct AdamWRange {
  long count;
  float* parameter;
  float* first_moment;
  float* second_moment;
  const float* gradient;
  BFloat16* rounded;
  AdamWNumbers by;
};

// 28 or 30 bytes an element and 18 operations, of which division and square root take most: 0.78 ms, by bytes.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads) adamw(AdamWRange op) {
  const FlatPart<kAligned> part(op.count);
  Floats<kWidth> g = part.load(op.gradient);
  Floats<kWidth> p = part.load(op.parameter);
  Floats<kWidth> m = part.load(op.first_moment);
  Floats<kWidth> v = part.load(op.second_moment);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float gradient = g.at[i] * op.by.scale;
    const float decayed = fmaf(-op.by.decay, p.at[i], p.at[i]);
    m.at[i] = fmaf(op.by.rest1, gradient, op.by.beta1 * m.at[i]);
    v.at[i] = fmaf(op.by.rest2 * gradient, gradient, op.by.beta2 * v.at[i]);
    const float divisor = fmaf(sqrtf(v.at[i]), op.by.correction2, op.by.epsilon);
    p.at[i] = fmaf(-op.by.step, m.at[i] / divisor, decayed);
  }
  part.store(p, op.parameter);
  part.store(m, op.first_moment);
  part.store(v, op.second_moment);
  if (op.rounded != nullptr) {
    part.store(p, op.rounded);
  }
}

struct SgdRange {
  long count;
  float* parameter;
  float* velocity;
  const float* gradient;
  BFloat16* rounded;
  float scale;
  float decay;
  float momentum;
  float lr;
};

// 12 bytes an element, 8 more with momentum: 0.52 ms.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads) sgd(SgdRange op) {
  const FlatPart<kAligned> part(op.count);
  Floats<kWidth> g = part.load(op.gradient);
  Floats<kWidth> p = part.load(op.parameter);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    g.at[i] = fmaf(op.decay, p.at[i], g.at[i] * op.scale);
  }
  if (op.velocity != nullptr) {
    const Floats<kWidth> velocity = part.load(op.velocity);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      g.at[i] = fmaf(op.momentum, velocity.at[i], g.at[i]);
    }
    part.store(g, op.velocity);
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    p.at[i] = fmaf(-op.lr, g.at[i], p.at[i]);
  }
  part.store(p, op.parameter);
  if (op.rounded != nullptr) {
    part.store(p, op.rounded);
  }
}

// A warp takes a chunk; its lanes are the lanes of the CPU's kernel, and so are the bits. 4 bytes an element: 0.10 ms.
__global__ void __launch_bounds__(kThreads)
    squared_sums(const float* x, long num_chunks, double* chunk_sums) {
  const long chunk = static_cast<long>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (chunk >= num_chunks) {
    return;
  }
  const unsigned lane = threadIdx.x % 32;
  const float* const own = x + chunk * kChunkElements + lane;
  double sum = 0;
#pragma unroll 16
  for (long i = 0; i < kChunkElements; i += 32) {
    const double value = own[i];
    sum = fma(value, value, sum);
  }
#pragma unroll
  for (unsigned half = 16; half > 0; half /= 2) {
    sum += __shfl_down_sync(0xffffffffU, sum, half);
  }
  if (lane == 0) {
    chunk_sums[chunk] = sum;
  }
}

constexpr int kLossesAtOnce = 4096;

// One chain of additions in the order that is promised: about 8 cycles a loss, 40 us for 8192. Losses come through
// shared memory, so that the chain waits for nothing else.
__global__ void __launch_bounds__(kThreads) loss_sum(const float* losses, long count, double* sum) {
  LOCKSTEP_SHARED_MEMORY(float, tile);
  double total = 0;
  for (long first = 0; first < count; first += kLossesAtOnce) {
    const long own = min(count - first, static_cast<long>(kLossesAtOnce));
    __syncthreads();
    for (long i = threadIdx.x; i < own; i += kThreads) {
      tile[i] = losses[first + i];
    }
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 8
      for (long i = 0; i < own; ++i) {
        total += static_cast<double>(tile[i]);
      }
    }
  }
  if (threadIdx.x == 0) {
    *sum = total;
  }
}

// The inputs of a SumTree, then its outputs.
struct PointersInParameters {
  void* at[kSumTreeParameters];
};

struct PointersInMemory {
  void* const* at;
};

// 4 bytes an element of each input and output: 0.31 ms for two inputs and one output.
template <bool kAligned, int kLevels, typename Pointers>
__global__ void __launch_bounds__(kThreads)
    sum_tree(Pointers pointers, int num_inputs, int num_outputs, long count) {
  const FlatPart<kAligned> part(count);
  const Floats<kWidth> sum = tree_sum<8, kLevels>(num_inputs, [&](int input) {
    return part.load(static_cast<const float*>(pointers.at[input]));
  });
  for (int output = 0; output < num_outputs; ++output) {
    part.store(sum, static_cast<float*>(pointers.at[num_inputs + output]));
  }
}

template <typename Pointers>
void start_sum_tree(cudaStream_t stream,
                    const SumTree& op,
                    bool aligned,
                    const Pointers& pointers) {
  with_flag(aligned, [&](auto is_aligned) {
    constexpr bool kAligned = decltype(is_aligned)::value;
    const auto kernel =
        op.num_inputs <= 8 ? sum_tree<kAligned, 0, Pointers> : sum_tree<kAligned, 13, Pointers>;
    launch_kernel(
        flat_shape(op.count), stream, kernel, pointers, op.num_inputs, op.num_outputs, op.count);
  });
}

}  // namespace

void run_on_cuda(CudaQueue& queue, const FillZero& op) {
  if (op.bytes > 0) {
    check_cuda(cudaMemsetAsync(op.data, 0, op.bytes, queue.stream()), "filling with zeros");
  }
}

void run_on_cuda(CudaQueue& queue, const CastToBFloat16& op) {
  if (op.count == 0) {
    return;
  }
  const bool aligned = is_aligned_f32(op.from) && is_aligned_bf16(op.to);
  launch_kernel(flat_shape(op.count),
                queue.stream(),
                aligned ? cast<true> : cast<false>,
                op.from,
                static_cast<BFloat16*>(op.to),
                op.count);
}

void run_on_cuda(CudaQueue& queue, const AdamW& op) {
  if (op.count == 0) {
    return;
  }
  const auto number = [](double value) { return static_cast<float>(value); };
  const AdamWNumbers by = {.scale = op.gradient_scale,
                           .decay = number(op.lr * op.weight_decay),
                           .beta1 = number(op.beta1),
                           .beta2 = number(op.beta2),
                           .rest1 = number(1 - op.beta1),
                           .rest2 = number(1 - op.beta2),
                           .step = number(op.lr / op.correction1),
                           .correction2 = number(1 / std::sqrt(op.correction2)),
                           .epsilon = number(op.epsilon)};
  const AdamWRange range = {op.count,
                            op.parameter,
                            op.first_moment,
                            op.second_moment,
                            op.gradient,
                            static_cast<BFloat16*>(op.compute_bf16),
                            by};
  const bool aligned = is_aligned_f32(op.parameter) && is_aligned_f32(op.first_moment) &&
                       is_aligned_f32(op.second_moment) && is_aligned_f32(op.gradient) &&
                       is_aligned_bf16(op.compute_bf16);
  launch_kernel(flat_shape(op.count), queue.stream(), aligned ? adamw<true> : adamw<false>, range);
}

void run_on_cuda(CudaQueue& queue, const Sgd& op) {
  if (op.count == 0) {
    return;
  }
  const SgdRange range = {op.count,
                          op.parameter,
                          op.velocity,
                          op.gradient,
                          static_cast<BFloat16*>(op.compute_bf16),
                          op.gradient_scale,
                          static_cast<float>(op.weight_decay),
                          static_cast<float>(op.momentum),
                          static_cast<float>(op.lr)};
  const bool aligned = is_aligned_f32(op.parameter) && is_aligned_f32(op.velocity) &&
                       is_aligned_f32(op.gradient) && is_aligned_bf16(op.compute_bf16);
  launch_kernel(flat_shape(op.count), queue.stream(), aligned ? sgd<true> : sgd<false>, range);
}

void run_on_cuda(CudaQueue& queue, const SquaredSums& op) {
  const long num_chunks = op.count / kChunkElements;
  if (num_chunks == 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>(ceil_div(num_chunks, long{kThreads / 32})));
  launch_kernel(
      {grid, dim3(kThreads)}, queue.stream(), squared_sums, op.x, num_chunks, op.chunk_sums);
}

void run_on_cuda(CudaQueue& queue, const LossSum& op) {
  launch_kernel({dim3(1), dim3(kThreads), kLossesAtOnce * sizeof(float)},
                queue.stream(),
                loss_sum,
                op.losses,
                op.count,
                op.sum);
}

void run_on_cuda(CudaQueue& queue, const SumTree& op) {
  if (op.count == 0) {
    return;
  }
  bool aligned = true;
  std::vector<void*> table;
  table.reserve(static_cast<std::size_t>(op.num_inputs + op.num_outputs));
  for (int input = 0; input < op.num_inputs; ++input) {
    table.push_back(const_cast<float*>(op.inputs[input]));
  }
  table.insert(table.end(), op.outputs, op.outputs + op.num_outputs);
  for (const void* pointer : table) {
    aligned = aligned && is_aligned_f32(pointer);
  }
  const std::size_t bytes = op.cuda_workspace_bytes();
  if (bytes == 0) {
    PointersInParameters pointers{};
    std::copy(table.begin(), table.end(), pointers.at);
    start_sum_tree(queue.stream(), op, aligned, pointers);
    return;
  }
  std::byte* const memory = queue.workspace(bytes);
  queue.copy_to_device(memory, table.data(), bytes);
  start_sum_tree(queue.stream(), op, aligned, PointersInMemory{reinterpret_cast<void**>(memory)});
}

}  // namespace lockstep
