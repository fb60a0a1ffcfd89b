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

float sum_of_block(const SoftmaxCrossEntropy& op, const float* row, long block, float largest) {
  const long block_cols = op.logits.cols / op.blocks;
  const long count = std::clamp(op.own_classes() - block * block_cols, 0L, block_cols);
  return sum_of_exponentials(row + block * block_cols, count, largest);
}

// The blocks' sums, combined by the aligned tree.
float sum_over_blocks(const SoftmaxCrossEntropy& op, const float* row, float largest) {
  const Floats d;
  return hn::GetLane(tree_sum_of(op.blocks, [&](long block) HWY_ATTR {
    return hn::Set(d, sum_of_block(op, row, block, largest));
  }));
}

// What the softmax of a row is made of.
struct RowSoftmax {
  float largest = 0;
  float sum = 0;
  float target_logit = 0;
};

RowSoftmax softmax_of_row(const SoftmaxCrossEntropy& op, const float* row, long target) {
  const float largest = largest_of(row, op.num_classes);
  return {largest, sum_over_blocks(op, row, largest), row[target]};
}

// The same from what all ranks of a split vocabulary said.
RowSoftmax gathered_softmax(const SoftmaxCrossEntropy& op, long row, long target) {
  const Floats d;
  const long rows = op.logits.rows;
  const long blocks = op.blocks;
  const float* sums = op.statistics.sums + row;
  const long part_size = (blocks + 1) * rows;
  const float sum = hn::GetLane(tree_sum_of(op.statistics.parts * blocks, [&](long block) HWY_ATTR {
    return hn::Set(d, sums[block / blocks * part_size + block % blocks * rows]);
  }));
  const long holder = target / op.logits.cols;  // every rank has as many columns
  return {op.statistics.maxima[row], sum, sums[holder * part_size + blocks * rows]};
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
  const long classes = op.own_classes();
  const long own_target = target - op.first_class;
  const bool has_target = own_target >= 0 && own_target < classes;
  const auto of_target =
      has_target ? hn::Mul(hn::Sub(probability(one, own_target), hn::Set(d, 1.0F)), scale)
                 : hn::Zero(d);
  for_vectors(0, classes, [&](long i, auto part) HWY_ATTR {
    part.store(hn::Mul(probability(part, i), scale), out + i);
  });
  if (has_target) {
    one.store(of_target, out + own_target);
  }
  std::fill(out + classes, out + op.dlogits.cols, T{});
}

void cross_entropy(const SoftmaxCrossEntropy& op, long row_begin, long row_end) {
  for (long i = row_begin; i < row_end; ++i) {
    const float* row = op.logits.row<float>(i);
    const long target = op.targets[i];
    if (op.predictions != nullptr) {
      const float largest = largest_of(row, op.num_classes);
      op.predictions[i] = static_cast<std::int32_t>(first_equal(row, op.num_classes, largest));
    }
    RowSoftmax softmax;
    op.losses[i] = 0;
    if (target >= 0) {
      softmax = op.statistics.parts > 0 ? gathered_softmax(op, i, target)
                                        : softmax_of_row(op, row, target);
      op.losses[i] = static_cast<float>(std::log(static_cast<double>(softmax.sum)) +
                                        static_cast<double>(softmax.largest) -
                                        static_cast<double>(softmax.target_logit));
    }
    if (op.dlogits && op.dlogits.dtype == DType::kBF16) {
      write_gradient(op, row, softmax.largest, softmax.sum, target, op.dlogits.row<BFloat16>(i));
    } else if (op.dlogits) {
      write_gradient(op, row, softmax.largest, softmax.sum, target, op.dlogits.row<float>(i));
    }
  }
}

void class_maxima(const ClassMaxima& op, long row_begin, long row_end) {
  for (long i = row_begin; i < row_end; ++i) {
    op.maxima[i] = largest_of(op.of.logits.row<float>(i), op.of.own_classes());
  }
}

void class_sums(const ClassSums& op, long row_begin, long row_end) {
  const SoftmaxCrossEntropy& of = op.of;
  const long rows = of.logits.rows;
  for (long i = row_begin; i < row_end; ++i) {
    const float* row = of.logits.row<float>(i);
    float largest = op.maxima[i];
    for (int part = 1; part < op.num_parts; ++part) {
      largest = std::max(largest, op.maxima[part * rows + i]);
    }
    op.largest[i] = largest;
    const long target = of.targets[i];
    for (long block = 0; block < of.blocks; ++block) {
      op.sums[block * rows + i] = target < 0 ? 0.0F : sum_of_block(of, row, block, largest);
    }
    const long own_target = target - of.first_class;
    const bool has_target = target >= 0 && own_target >= 0 && own_target < of.own_classes();
    op.sums[of.blocks * rows + i] = has_target ? row[own_target] : 0.0F;
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(cross_entropy);
HWY_EXPORT(class_maxima);
HWY_EXPORT(class_sums);

// An exponential costs several elements of plain traffic.
long rows_per_task(const SoftmaxCrossEntropy& op) {
  return kElementsPerTask / 8 / op.logits.cols;
}

}  // namespace

void run_on_cpu(CpuQueue& queue, const SoftmaxCrossEntropy& op) {
  LOCKSTEP_CHECK(op.blocks >= 1 && op.blocks <= kMaxBlocks && op.logits.cols % op.blocks == 0);
  LOCKSTEP_CHECK(op.statistics.parts * op.blocks <= kMaxBlocks);
  for_ranges(queue.threads(), op.logits.rows, rows_per_task(op), [&](IndexRange rows) {
    HWY_DYNAMIC_DISPATCH(cross_entropy)(op, rows.begin, rows.end);
  });
}

void run_on_cpu(CpuQueue& queue, const ClassMaxima& op) {
  for_ranges(queue.threads(), op.of.logits.rows, 8 * rows_per_task(op.of), [&](IndexRange rows) {
    HWY_DYNAMIC_DISPATCH(class_maxima)(op, rows.begin, rows.end);
  });
}

void run_on_cpu(CpuQueue& queue, const ClassSums& op) {
  for_ranges(queue.threads(), op.of.logits.rows, rows_per_task(op.of), [&](IndexRange rows) {
    HWY_DYNAMIC_DISPATCH(class_sums)(op, rows.begin, rows.end);
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
