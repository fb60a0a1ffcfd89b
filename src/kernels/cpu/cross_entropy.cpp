#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_tasks.h"
#include "kernels/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

// exp(x) for x <= 0 with a relative error of about 2^-23; 0 below the smallest normal number; NaN
// stays NaN, so that no bad logit is lost. x = n log 2 + r with |r| <= log(2) / 2, where the series
// of exp(r) up to r^7 / 7! leaves 2^-27.
HWY_INLINE FloatVector exp_of_negative(FloatVector x) {
  const Floats d;
  const hn::RebindToSigned<Floats> integers;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 0x1.715476p0F)));
  const auto whole = hn::ConvertTo(d, n);
  // log(2) in two parts; the first has few bits, so that its product with n is exact.
  auto r = hn::NegMulAdd(whole, hn::Set(d, 0x1.62ep-1F), x);
  r = hn::NegMulAdd(whole, hn::Set(d, 0x1.0bfbe8p-15F), r);
  auto series = hn::Set(d, 1.0F / 5040);
  for (const float coefficient : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) {
    series = hn::MulAdd(series, r, hn::Set(d, coefficient));
  }
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(integers, 127))));
  const auto tiny = hn::Lt(x, hn::Set(d, -87.3F));
  return hn::IfThenElse(tiny, hn::Zero(d), hn::Mul(series, power));
}

HWY_INLINE FloatVector first_lanes(FloatVector value, WholeVector /*part*/) {
  return value;
}

HWY_INLINE FloatVector first_lanes(FloatVector value, PartOfVector part) {
  return hn::IfThenElseZero(hn::FirstN(Floats(), static_cast<std::size_t>(part.count)), value);
}

float largest_of(const float* row, long count) {
  const Floats d;
  float largest = -std::numeric_limits<float>::infinity();
  long i = 0;
  if (count >= kLanes) {
    auto lanes = hn::LoadU(d, row);
    for (i = kLanes; i + kLanes <= count; i += kLanes) {
      lanes = hn::Max(lanes, hn::LoadU(d, row + i));
    }
    largest = hn::GetLane(hn::MaxOfLanes(d, lanes));
  }
  for (; i < count; ++i) {
    largest = std::max(largest, row[i]);
  }
  return largest;
}

long first_equal(const float* row, long count, float value) {
  const Floats d;
  const auto wanted = hn::Set(d, value);
  long i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto found = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, row + i), wanted));
    if (found >= 0) {
      return i + static_cast<long>(found);
    }
  }
  for (; i < count; ++i) {
    if (row[i] == value) {
      return i;
    }
  }
  return 0;  // only NaN everywhere
}

float sum_of_exponentials(const float* row, long count, float largest) {
  const Floats d;
  const auto shift = hn::Set(d, largest);
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  for_vectors(0, count, [&](long i, auto part) HWY_ATTR {
    const auto value = first_lanes(exp_of_negative(hn::Sub(part.load(row + i), shift)), part);
    auto& sum = (i / kLanes) % 2 == 0 ? even : odd;
    sum = hn::Add(sum, value);
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

// The blocks' sums, combined by the aligned tree.
float sum_over_blocks(const SoftmaxCrossEntropy& op, const float* row, float largest) {
  const Floats d;
  const long block_cols = op.logits.cols / op.blocks;
  return hn::GetLane(tree_sum_of(op.blocks, [&](long block) HWY_ATTR {
    const long count = std::clamp(op.num_classes - block * block_cols, 0L, block_cols);
    return hn::Set(d, sum_of_exponentials(row + block * block_cols, count, largest));
  }));
}

// Fills dlogits; target is negative for a row that is not trained.
template <typename T>
void write_gradient(const SoftmaxCrossEntropy& op,
                    const float* row,
                    float largest,
                    float sum,
                    long target,
                    T* out) {
  const Floats d;
  if (target < 0) {
    std::fill_n(out, op.dlogits.cols, T{});
    return;
  }
  const auto shift = hn::Set(d, largest);
  const auto divisor = hn::Set(d, 1.0F / sum);
  const auto scale = hn::Set(d, op.scale);
  const auto probability = [&](auto part, long i) HWY_ATTR {
    return hn::Mul(exp_of_negative(hn::Sub(part.load(row + i), shift)), divisor);
  };
  const PartOfVector one{1};
  const auto of_target = hn::Mul(hn::Sub(probability(one, target), hn::Set(d, 1.0F)), scale);
  for_vectors(0, op.num_classes, [&](long i, auto part) HWY_ATTR {
    part.store(hn::Mul(probability(part, i), scale), out + i);
  });
  one.store(of_target, out + target);
  std::fill(out + op.num_classes, out + op.dlogits.cols, T{});
}

void cross_entropy(const SoftmaxCrossEntropy& op, long row_begin, long row_end) {
  for (long i = row_begin; i < row_end; ++i) {
    const float* row = op.logits.row<float>(i);
    const long target = op.targets[i];
    const float largest = largest_of(row, op.num_classes);
    if (op.predictions != nullptr) {
      op.predictions[i] = static_cast<std::int32_t>(first_equal(row, op.num_classes, largest));
    }
    float sum = 0;
    op.losses[i] = 0;
    if (target >= 0) {
      sum = sum_over_blocks(op, row, largest);
      op.losses[i] =
          static_cast<float>(std::log(static_cast<double>(sum)) + static_cast<double>(largest) -
                             static_cast<double>(row[target]));
    }
    if (op.dlogits && op.dlogits.dtype == DType::kBF16) {
      write_gradient(op, row, largest, sum, target, op.dlogits.row<BFloat16>(i));
    } else if (op.dlogits) {
      write_gradient(op, row, largest, sum, target, op.dlogits.row<float>(i));
    }
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(cross_entropy);

}  // namespace

void run_on_cpu(CpuQueue& queue, const SoftmaxCrossEntropy& op) {
  LOCKSTEP_CHECK(op.blocks >= 1 && op.blocks <= kMaxBlocks && op.logits.cols % op.blocks == 0);
  // An exponential costs several elements of plain traffic.
  const long rows_per_task = kElementsPerTask / 8 / op.logits.cols;
  for_ranges(queue.threads(), op.logits.rows, rows_per_task, [&](IndexRange rows) {
    HWY_DYNAMIC_DISPATCH(cross_entropy)(op, rows.begin, rows.end);
  });
}

void run_on_cpu(CpuQueue& /*queue*/, const LossSum& op) {
  double sum = 0;
  for (long i = 0; i < op.count; ++i) {
    sum += static_cast<double>(op.losses[i]);
  }
  *op.sum = sum;
}

}  // namespace lockstep
#endif
