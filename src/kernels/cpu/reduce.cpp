#include "kernels/reduce.h"

#include <array>
#include <cstring>

#include "base/aligned_tree.h"
#include "base/error.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

void sum_tree(const SumTree& op, long begin, long end) {
  for_vectors(begin, end, [&](long i, auto part) HWY_ATTR {
    const auto sum = tree_sum_of(
        op.num_inputs, [&](long input) HWY_ATTR { return part.load(op.inputs[input] + i); });
    for (int output = 0; output < op.num_outputs; ++output) {
      part.store(sum, op.outputs[output] + i);
    }
  });
}

// Lane l of 32 sums the squares of the elements l, l + 32, ... in this order, whatever the width of
// the registers; squares of floats are exact in f64, so fused or not the bits are the same.
double squared_sum(const float* x) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> floats;
  constexpr long kDoubles = HWY_MAX_BYTES / 8;
  constexpr long kSums = 32 / kDoubles;
  using V = hn::Vec<hn::ScalableTag<double>>;
  V sums[kSums];
#pragma GCC unroll 16
  for (long s = 0; s < kSums; ++s) {
    sums[s] = hn::Zero(d);
  }
  for (long i = 0; i < kChunkElements; i += 32) {
#pragma GCC unroll 16
    for (long s = 0; s < kSums; ++s) {
      const V value = hn::PromoteTo(d, hn::LoadU(floats, x + i + s * kDoubles));
      sums[s] = hn::MulAdd(value, value, sums[s]);
    }
  }
  std::array<double, 32> lanes{};
  for (long s = 0; s < kSums; ++s) {
    hn::StoreU(sums[s], d, lanes.data() + s * kDoubles);
  }
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) {
      lanes[lane] += lanes[lane + half];
    }
  }
  return lanes[0];
}

void cast(const CastToBFloat16& op, long begin, long end) {
  auto* to = static_cast<BFloat16*>(op.to);
  for_vectors(
      begin, end, [&](long i, auto part) HWY_ATTR { part.store(part.load(op.from + i), to + i); });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(sum_tree);
HWY_EXPORT(squared_sum);
HWY_EXPORT(cast);

}  // namespace

void run_on_cpu(CpuQueue& queue, const SumTree& op) {
  LOCKSTEP_CHECK(op.num_inputs >= 1);
  for_ranges(queue.threads(), op.count, kElementsPerTask / op.num_inputs, [&](IndexRange range) {
    HWY_DYNAMIC_DISPATCH(sum_tree)(op, range.begin, range.end);
  });
}

void run_on_cpu(CpuQueue& queue, const SquaredSums& op) {
  LOCKSTEP_CHECK(op.count % kChunkElements == 0);
  constexpr long kChunksPerTask = kElementsPerTask / kChunkElements;
  for_ranges(queue.threads(), op.count / kChunkElements, kChunksPerTask, [&](IndexRange chunks) {
    for (long chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      op.chunk_sums[chunk] = HWY_DYNAMIC_DISPATCH(squared_sum)(op.x + chunk * kChunkElements);
    }
  });
}

void run_on_cpu(CpuQueue& queue, const FillZero& op) {
  constexpr long kBytesPerTask = kElementsPerTask * 4;
  for_ranges(queue.threads(), static_cast<long>(op.bytes), kBytesPerTask, [&](IndexRange bytes) {
    std::memset(
        static_cast<std::byte*>(op.data) + bytes.begin, 0, static_cast<std::size_t>(bytes.size()));
  });
}

void run_on_cpu(CpuQueue& queue, const CastToBFloat16& op) {
  for_ranges(queue.threads(), op.count, kElementsPerTask, [&](IndexRange range) {
    HWY_DYNAMIC_DISPATCH(cast)(op, range.begin, range.end);
  });
}

}  // namespace lockstep
#endif
