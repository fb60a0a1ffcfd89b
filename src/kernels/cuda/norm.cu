// Layer norm and RMS norm, forward.
#include "base/bfloat16.h"
#include "device/cuda/launch.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/norm.h"

namespace lockstep {
namespace {

constexpr int kVectorsInRegisters = 4;
constexpr long kMostThreads = 512;
constexpr unsigned kLeastBlock = 128;  // threads; rows of one warp share a block

template <typename X, typename T>
struct NormOperands {
  BlockRows<X> x;
  const T* x_bias;
  Rows<const T> residual;
  Rows<T> sum;
  const T* gain;
  const T* bias;
  Rows<T> y;
  float* mean;
  float* rstd;
  float epsilon;
  bool layer;
  long rows;
  long cols;
};

// The rounded sum of a row's inputs, which is also stored if there is somewhere to.
template <bool kAligned, int kWidth, typename X, typename T>
__device__ __forceinline__ Floats<kWidth> sum_inputs(const NormOperands<X, T>& op,
                                                     long row,
                                                     long col,
                                                     int count) {
  Floats<kWidth> value = op.x.template load<kAligned, kWidth>(row, col, count);
  if (op.x_bias != nullptr) {
    value = value + load_floats<kAligned, kWidth>(op.x_bias + col, count);
  }
  if (op.residual.data != nullptr) {
    value = value + load_floats<kAligned, kWidth>(op.residual.at(row, col), count);
  }
  value = round_to<T>(value);
  if (op.sum.data != nullptr) {
    store_floats<kAligned>(value, op.sum.at(row, col), count);
  }
  return value;
}

// Two passes over a row for mean and variance, as differences of large sums lose digits. With kVectors > 0 the row stays
// in registers; else the passes read it again. 8 x 1024 tokens, 768 features in bf16 with residual and sum: 50 MB,
// 10.5 us at 4.8 TB/s; 8 operations an element.
template <typename X, typename T, bool kAligned, int kVectors>
__global__ void __launch_bounds__(kMostThreads, 1) norm_forward(NormOperands<X, T> op) {
  constexpr int kWidth = kVectorWidth<T>;
  LOCKSTEP_SHARED_MEMORY(float, shared);
  const long row = static_cast<long>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= op.rows) {
    return;  // a whole warp, and no other waits for it
  }
  Floats<kWidth> kept[kVectors > 0 ? kVectors : 1] = {};
  const auto value_at = [&](int v, long col, int count) {
    if constexpr (kVectors > 0) {
      return kept[v];
    } else {  // the thread's own stores, or x itself
      return op.sum.data != nullptr ? load_floats<kAligned, kWidth>(op.sum.at(row, col), count)
                                    : op.x.template load<kAligned, kWidth>(row, col, count);
    }
  };
  float total = 0.0F;
  for_own_vectors<kWidth, kVectors>(op.cols, [&](int v, long col, int count) {
    kept[v] = sum_inputs<kAligned, kWidth>(op, row, col, count);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      total += kept[v].at[i];  // zeros behind the end
    }
  });
  const auto width = static_cast<float>(op.cols);
  const float mean = op.layer ? row_sum(total, shared) / width : 0.0F;

  float squares = 0.0F;
  for_own_vectors<kWidth, kVectors>(op.cols, [&](int v, long col, int count) {
    const Floats<kWidth> value = value_at(v, col, count);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float difference = i < count ? value.at[i] - mean : 0.0F;
      squares = fmaf(difference, difference, squares);
    }
  });
  const float variance = row_sum(squares, shared + kMostWarps) / width;
  const float rstd = 1.0F / sqrtf(variance + op.epsilon);

  for_own_vectors<kWidth, kVectors>(op.cols, [&](int v, long col, int count) {
    Floats<kWidth> value = value_at(v, col, count);
    const Floats<kWidth> gain = load_floats<kAligned, kWidth>(op.gain + col, count);
    Floats<kWidth> bias = zeros<kWidth>();
    if (op.bias != nullptr) {
      bias = load_floats<kAligned, kWidth>(op.bias + col, count);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      value.at[i] = fmaf((value.at[i] - mean) * rstd, gain.at[i], bias.at[i]);
    }
    store_floats<kAligned>(value, op.y.at(row, col), count);
  });
  if (threadIdx.x == 0) {
    if (op.mean != nullptr) {
      op.mean[row] = mean;
    }
    if (op.rstd != nullptr) {
      op.rstd[row] = rstd;
    }
  }
}

template <typename X, typename T>
void run(CudaQueue& queue, const NormForward& op) {
  constexpr int kWidth = kVectorWidth<T>;
  const NormOperands<X, T> operands = {BlockRows<X>(op.x),
                                       op.x_bias.as<T>(),
                                       Rows<const T>(op.residual),
                                       Rows<T>(op.sum),
                                       op.gain.as<T>(),
                                       op.bias.as<T>(),
                                       Rows<T>(op.y),
                                       op.mean,
                                       op.rstd,
                                       static_cast<float>(op.epsilon),
                                       op.kind == NormKind::kLayer,
                                       op.y.rows,
                                       op.y.cols};
  const long vectors = ceil_div(op.y.cols, long{kWidth});
  const unsigned threads = row_threads(vectors, kVectorsInRegisters, kMostThreads);
  const unsigned rows_of_block = threads == kWarpSize ? kLeastBlock / kWarpSize : 1;
  const LaunchShape shape = {dim3(static_cast<unsigned>(ceil_div(op.y.rows, long{rows_of_block}))),
                             dim3(threads, rows_of_block),
                             2 * kMostWarps * sizeof(float)};
  const bool all_aligned = is_aligned(op.x, kWidth) && is_aligned(op.x_bias, kWidth) &&
                           is_aligned(op.residual, kWidth) && is_aligned(op.sum, kWidth) &&
                           is_aligned(op.gain, kWidth) && is_aligned(op.bias, kWidth) &&
                           is_aligned(op.y, kWidth);
  with_flag(all_aligned, [&](auto aligned) {
    constexpr bool kAligned = decltype(aligned)::value;
    const bool in_registers = vectors <= kVectorsInRegisters * long{threads};
    const auto kernel = in_registers ? norm_forward<X, T, kAligned, kVectorsInRegisters>
                                     : norm_forward<X, T, kAligned, 0>;
    launch_kernel(shape, queue.stream(), kernel, operands);
  });
}

}  // namespace

void run_on_cuda(CudaQueue& queue, const NormForward& op) {
  if (op.y.rows == 0 || op.y.cols == 0) {
    return;
  }
  if (op.y.dtype == DType::kF32) {
    run<float, float>(queue, op);
  } else if (op.x.first.dtype == DType::kF32) {
    run<float, BFloat16>(queue, op);
  } else {
    run<BFloat16, BFloat16>(queue, op);
  }
}

}  // namespace lockstep
