// The tree sum of a row of several blocks, one vector at a time.

#if defined(LOCKSTEP_KERNELS_CPU_BLOCK_SUM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_BLOCK_SUM_INL_H
#undef LOCKSTEP_KERNELS_CPU_BLOCK_SUM_INL_H
#else
#define LOCKSTEP_KERNELS_CPU_BLOCK_SUM_INL_H
#endif

#include <bit>

#include "kernels/cpu/simd-inl.h"
#include "kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

/// Sums leaf(0) .. leaf(count - 1) by the aligned tree; 1 <= count <= kMaxBlocks.
template <typename Leaf>
HWY_INLINE VecF32 tree_sum_of(long count, const Leaf& leaf) {
  if (count == 1) {
    return leaf(0);
  }
  // pending[l] is a complete node of 2^l leaves: present where bit l of the leaves so far is set.
  VecF32 pending[std::bit_width(static_cast<unsigned>(kMaxBlocks))];
  for (long i = 0; i < count; ++i) {
    VecF32 node = leaf(i);
    int level = 0;
    for (; ((i >> level) & 1) != 0; ++level) {
      node = hn::Add(pending[level], node);
    }
    pending[level] = node;
  }
  // What is left over joins from the right: an odd last node moves up unchanged.
  int level = std::countr_zero(static_cast<unsigned long>(count));
  VecF32 sum = pending[level];
  for (++level; (count >> level) != 0; ++level) {
    if (((count >> level) & 1) != 0) {
      sum = hn::Add(pending[level], sum);
    }
  }
  return sum;
}

/// One row of a BlockSum of elements T.
template <typename T>
class BlockRow {
 public:
  BlockRow(const BlockSum& blocks, long row)
      : first_(blocks.first.row<T>(row)), count_(blocks.count), stride_(blocks.stride) {}

  /// Columns [i, ...) of the sum, not rounded.
  template <typename Lanes>
  HWY_INLINE VecF32 load_sum(long i, Lanes lanes) const {
    return tree_sum_of(
        count_, [&](long block) HWY_ATTR { return load(first_ + block * stride_ + i, lanes); });
  }

 private:
  const T* first_;
  long count_;
  long stride_;
};

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
