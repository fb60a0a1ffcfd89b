#include "base/integers.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_tasks.h"
#include "kernels/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/combine_blocks.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

template <typename T, typename Operand, typename Out>
void combine_as(const CombineBlocks& op, long row_begin, long row_end) {
  const long cols = op.out.cols;
  for (long row = row_begin; row < row_end; ++row) {
    const T* first = op.blocks.first.row<T>(row);
    const auto* bias = op.bias.as<Operand>();
    const auto* residual = op.residual ? op.residual.row<Operand>(row) : nullptr;
    Out* out = op.out.row<Out>(row);
    for_vectors(0, cols, [&](long col, auto part) HWY_ATTR {
      auto sum = tree_sum_of(op.blocks.count, [&](long block) HWY_ATTR {
        return part.load(first + block * op.blocks.stride + col);
      });
      if (bias != nullptr) {
        sum = hn::Add(sum, part.load(bias + col));
      }
      if (residual != nullptr) {
        sum = hn::Add(sum, part.load(residual + col));
      }
      part.store(sum, out + col);
    });
  }
}

template <typename T, typename Operand>
void combine_to(const CombineBlocks& op, long row_begin, long row_end) {
  const bool bf16 = op.out.dtype == DType::kBF16;
  (bf16 ? combine_as<T, Operand, BFloat16> : combine_as<T, Operand, float>)(op, row_begin, row_end);
}

void combine(const CombineBlocks& op, long row_begin, long row_end) {
  const DType operand = op.residual ? op.residual.dtype : op.bias.dtype;
  const bool narrow = operand == DType::kBF16;
  if (op.blocks.first.dtype == DType::kBF16) {
    (narrow ? combine_to<BFloat16, BFloat16> : combine_to<BFloat16, float>)(op, row_begin, row_end);
  } else {
    (narrow ? combine_to<float, BFloat16> : combine_to<float, float>)(op, row_begin, row_end);
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(combine);

}  // namespace

void run_on_cpu(CpuQueue& queue, const CombineBlocks& op) {
  for_ranges(queue.threads(), op.out.rows, kElementsPerTask / op.out.cols, [&](IndexRange rows) {
    HWY_DYNAMIC_DISPATCH(combine)(op, rows.begin, rows.end);
  });
}

}  // namespace lockstep
#endif
