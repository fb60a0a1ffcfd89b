// Rows of f32 or bf16 as vectors of f32, and the aligned tree over vectors. Included once a target
// by sources that are compiled for several (see Highway's foreach_target.h).
#if defined(LOCKSTEP_KERNELS_CPU_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_VECTORS_INL_H
#undef LOCKSTEP_KERNELS_CPU_VECTORS_INL_H
#else
#define LOCKSTEP_KERNELS_CPU_VECTORS_INL_H
#endif

#include <array>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "base/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// As many floats as a register holds.
using Floats = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Floats>;
inline constexpr long kLanes = HWY_MAX_BYTES / 4;

template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> halves;
  const hn::RebindToUnsigned<D> words;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}

/// The first `count` < kLanes elements; the other lanes are zero. Reads no more than these.
template <typename T>
HWY_INLINE FloatVector load_first(const T* from, long count) {
  std::array<T, kLanes> copy{};
  std::memcpy(copy.data(), from, static_cast<std::size_t>(count) * sizeof(T));
  return load_floats(Floats(), copy.data());
}

template <>
HWY_INLINE FloatVector load_first(const float* from, long count) {
  const Floats d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
#else
  std::array<float, kLanes> copy{};
  std::memcpy(copy.data(), from, static_cast<std::size_t>(count) * sizeof(float));
  return hn::LoadU(d, copy.data());
#endif
}

HWY_INLINE void store_floats(FloatVector value, float* to) {
  hn::StoreU(value, Floats(), to);
}

/// Rounds to nearest, ties to even, as to_bfloat16 does.
HWY_INLINE void store_floats(FloatVector value, BFloat16* to) {
  const hn::RebindToUnsigned<Floats> words;
  const hn::RebindToSigned<Floats> integers;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const auto bits = hn::BitCast(words, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(words, 0x7fff), odd));
  const auto quiet = hn::Or(bits, hn::Set(words, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(value)), quiet, rounded);
  const auto upper = hn::BitCast(integers, hn::ShiftRight<16>(chosen));
  hn::StoreU(hn::DemoteTo(halves, upper), halves, reinterpret_cast<std::uint16_t*>(to));
}

/// Stores the first `count` < kLanes elements and touches no others.
template <typename T>
HWY_INLINE void store_first(FloatVector value, T* to, long count) {
  std::array<T, kLanes> copy;
  store_floats(value, copy.data());
  std::memcpy(to, copy.data(), static_cast<std::size_t>(count) * sizeof(T));
}

template <>
HWY_INLINE void store_first(FloatVector value, float* to, long count) {
  const Floats d;
  hn::BlendedStore(value, hn::FirstN(d, static_cast<std::size_t>(count)), d, to);
}

/// Loads of whole vectors, and of a last part: bodies of loops are written once for both.
struct WholeVector {
  template <typename T>
  HWY_INLINE FloatVector load(const T* from) const {
    return load_floats(Floats(), from);
  }
  template <typename T>
  HWY_INLINE void store(FloatVector value, T* to) const {
    store_floats(value, to);
  }
};

struct PartOfVector {
  long count;

  template <typename T>
  HWY_INLINE FloatVector load(const T* from) const {
    return load_first(from, count);
  }
  template <typename T>
  HWY_INLINE void store(FloatVector value, T* to) const {
    store_first(value, to, count);
  }
};

/// Calls body(first element, WholeVector or PartOfVector) for all vectors of [begin, end).
template <class Body>
HWY_INLINE void for_vectors(long begin, long end, const Body& body) {
  long i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    body(i, WholeVector{});
  }
  if (i < end) {
    body(i, PartOfVector{end - i});
  }
}

/// Most leaves of tree_sum_of: 2^16.
inline constexpr int kMaxTreeLevels = 16;

/// Sums leaf(0) .. leaf(count - 1), vectors of f32, by the aligned tree; count is at least 1. Sums
/// of whole subtrees wait, by level, until their right neighbour is complete; the last leaf
/// completes all that still wait.
template <class Leaf>
HWY_INLINE FloatVector tree_sum_of(long count, const Leaf& leaf) {
  FloatVector waiting[kMaxTreeLevels];
  for (long index = 0; index < count - 1; ++index) {
    FloatVector sum = leaf(index);
    int level = 0;
    for (; (index >> level & 1) != 0; ++level) {
      sum = hn::Add(waiting[level], sum);
    }
    waiting[level] = sum;
  }
  FloatVector sum = leaf(count - 1);
  for (int level = 0; (count - 1) >> level != 0; ++level) {
    if (((count - 1) >> level & 1) != 0) {
      sum = hn::Add(waiting[level], sum);
    }
  }
  return sum;
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
