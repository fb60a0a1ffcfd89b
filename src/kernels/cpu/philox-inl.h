// Philox and the words of dropout's masks (base/dropout_mask.h), many counters at a time. Integers only: the
// same numbers with every instruction set.

#if defined(LOCKSTEP_KERNELS_CPU_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_PHILOX_INL_H
#undef LOCKSTEP_KERNELS_CPU_PHILOX_INL_H
#else
#define LOCKSTEP_KERNELS_CPU_PHILOX_INL_H
#endif

#include "base/dropout_mask.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

using TagBits64 = hn::Repartition<std::uint64_t, TagF32>;
using VecBits64 = hn::Vec<TagBits64>;
using VecBits32 = hn::Vec<TagBits32>;
inline constexpr TagBits64 kBits64Tag{};
inline constexpr TagBits32 kBits32Tag{};

/// Counters that a vector holds, one in the lower half of each 64-bit lane; what the upper halves hold means
/// nothing.
inline constexpr long kCounters = kLanes / 2;

/// The four words of kCounters counters.
struct CounterWords {
  VecBits64 word[4];
};

HWY_INLINE VecBits64 splat_counter(long value) {
  return hn::Set(kBits64Tag, static_cast<std::uint32_t>(value));
}

/// As philox4x32.
HWY_INLINE CounterWords philox(CounterWords counter, std::array<std::uint32_t, 2> key) {
  const VecBits32 factor0 = hn::Set(kBits32Tag, kPhiloxFactors[0]);
  const VecBits32 factor1 = hn::Set(kBits32Tag, kPhiloxFactors[1]);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const VecBits64 product0 = hn::MulEven(hn::BitCast(kBits32Tag, counter.word[0]), factor0);
    const VecBits64 product1 = hn::MulEven(hn::BitCast(kBits32Tag, counter.word[2]), factor1);
    counter.word[0] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), counter.word[1]),
                              hn::Set(kBits64Tag, key[0]));
    counter.word[1] = product1;
    counter.word[2] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), counter.word[3]),
                              hn::Set(kBits64Tag, key[1]));
    counter.word[3] = product0;
    key[0] += kPhiloxKeySteps[0];
    key[1] += kPhiloxKeySteps[1];
  }
  return counter;
}

/// lower[0], upper[0], lower[1], upper[1], ...: the lower halves of the lanes of both.
HWY_INLINE VecBits32 alternate(VecBits64 lower, VecBits64 upper) {
  return hn::OddEven(hn::BitCast(kBits32Tag, hn::ShiftLeft<32>(upper)),
                     hn::BitCast(kBits32Tag, lower));
}

/// factor[i] of DropoutMask for the elements with these words.
HWY_INLINE VecF32 factors_of(const DropoutMask& mask, VecBits32 words) {
  const auto dropped = hn::Lt(words, hn::Set(kBits32Tag, mask.threshold));
  return hn::IfThenZeroElse(hn::RebindMask(kF32Tag, dropped), splat(mask.scale));
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
