#include "kernels/norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/highway.h>

#include "base/error.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/block_sum-inl.h"
#include "kernels/cpu/row_pieces.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

// A sum over a row: vectors go to accumulators in turn, which are added in order at the end.
class RowSum {
 public:
  HWY_INLINE RowSum()
      : first_(hn::Zero(kF32Tag)), second_(first_), third_(first_), fourth_(first_) {}
  HWY_INLINE void add(VecF32 value) {
    const VecF32 sum = hn::Add(first_, value);
    first_ = second_;
    second_ = third_;
    third_ = fourth_;
    fourth_ = sum;
  }
  HWY_INLINE float total() const {
    return sum_of_lanes(hn::Add(hn::Add(first_, second_), hn::Add(third_, fourth_)));
  }

 private:
  VecF32 first_;
  VecF32 second_;
  VecF32 third_;
  VecF32 fourth_;
};

// Stores the rounded sum of a row's inputs and returns the sum of its elements.
template <typename X, typename T>
HWY_INLINE float sum_inputs(const NormForward& op, long row) {
  T* const sum = op.sum.row<T>(row);
  const T* const x_bias = op.x_bias.as<T>();
  const T* const residual = op.residual ? op.residual.row<T>(row) : nullptr;
  const BlockRow<X> blocks(op.x, row);
  RowSum total;
  for_each_vector(op.y.cols, [&](long i, auto lanes) HWY_ATTR {
    VecF32 value = blocks.load_sum(i, lanes);
    if (x_bias != nullptr) {
      value = hn::Add(value, load(x_bias + i, lanes));
    }
    if (residual != nullptr) {
      value = hn::Add(value, load(residual + i, lanes));
    }
    value = round_to<T>(value);
    store(value, sum + i, lanes);
    total.add(value);
  });
  return total.total();
}

template <typename T>
HWY_INLINE float sum_row(const T* x, long cols) {
  RowSum total;
  for_each_vector(cols, [&](long i, auto lanes) HWY_ATTR { total.add(load(x + i, lanes)); });
  return total.total();
}

template <typename T>
HWY_INLINE float sum_squared_differences(const T* x, long cols, float mean) {
  const VecF32 center = splat(mean);
  RowSum total;
  for_each_vector(cols, [&](long i, auto lanes) HWY_ATTR {
    const VecF32 difference = keep(hn::Sub(load(x + i, lanes), center), lanes);
    total.add(hn::Mul(difference, difference));
  });
  return total.total();
}

template <typename X, typename T>
void norm_forward_row(const NormForward& op, long row) {
  const long cols = op.y.cols;
  const auto width = static_cast<float>(cols);
  const bool layer = op.kind == NormKind::kLayer;
  float total = 0.0F;
  const T* x = op.x.first.row<T>(row);  // right where there is no sum: then X is T
  if (op.sum) {
    total = sum_inputs<X, T>(op, row);
    x = op.sum.row<T>(row);
  } else if (layer) {
    total = sum_row(x, cols);
  }
  const float mean = layer ? total / width : 0.0F;
  const float variance = sum_squared_differences(x, cols, mean) / width;
  const float rstd = 1.0F / std::sqrt(variance + static_cast<float>(op.epsilon));

  const T* const gain = op.gain.as<T>();
  const T* const bias = op.bias.as<T>();
  T* const y = op.y.row<T>(row);
  for_each_vector(cols, [&](long i, auto lanes) HWY_ATTR {
    const VecF32 normal = hn::Mul(hn::Sub(load(x + i, lanes), splat(mean)), splat(rstd));
    const VecF32 factor = load(gain + i, lanes);
    const VecF32 value = bias != nullptr ? hn::MulAdd(normal, factor, load(bias + i, lanes))
                                         : hn::Mul(normal, factor);
    store(value, y + i, lanes);
  });
  if (op.mean != nullptr) {
    op.mean[row] = mean;
  }
  if (op.rstd != nullptr) {
    op.rstd[row] = rstd;
  }
}

void norm_forward(CpuQueue& queue, const NormForward& op) {
  for_each_row(queue.threads(), op.y.rows, op.y.cols, [&op](long row) {
    if (op.y.dtype == DType::kF32) {
      norm_forward_row<float, float>(op, row);
    } else if (op.x.first.dtype == DType::kF32) {
      norm_forward_row<float, BFloat16>(op, row);
    } else {
      norm_forward_row<BFloat16, BFloat16>(op, row);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(norm_forward);
}  // namespace

void run_on_cpu(CpuQueue& queue, const NormForward& op) {
  LOCKSTEP_CHECK(op.sum || (op.x.count == 1 && !op.x_bias && !op.residual));
  LOCKSTEP_CHECK(op.sum || op.x.first.dtype == op.y.dtype);
  HWY_DYNAMIC_DISPATCH(norm_forward)(queue, op);
}

}  // namespace lockstep
#endif
