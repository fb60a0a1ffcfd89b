// Vectors of f32 for the CPU kernels: memory in f32 or bf16, arithmetic in f32.
//
// Included by sources that Highway compiles once an instruction set (foreach_target). Everything is
// elementwise or has a fixed order of lanes, so that bits depend on the instruction set and the
// data alone. Tails are masked: nothing beyond them is read or written.

#if defined(LOCKSTEP_KERNELS_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_SIMD_INL_H
#undef LOCKSTEP_KERNELS_CPU_SIMD_INL_H
#else
#define LOCKSTEP_KERNELS_CPU_SIMD_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include <hwy/highway.h>

#include "base/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using TagF32 = hn::ScalableTag<float>;
using VecF32 = hn::Vec<TagF32>;
inline constexpr TagF32 kF32Tag{};
inline constexpr long kLanes = static_cast<long>(HWY_LANES(float));

/// How many lanes of a vector take part in a load or a store: all of them, or the first `count`
/// (1..kLanes-1) at the end of a row.
struct AllLanes {
  [[nodiscard]] static constexpr long size() { return kLanes; }
};
struct FirstLanes {
  long count;
  [[nodiscard]] long size() const { return count; }
};

/// Calls body(i, lanes) for the vectors that cover [0, count), in order.
template <typename Body>
HWY_INLINE void for_each_vector(long count, const Body& body) {
  long i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    body(i, AllLanes{});
  }
  if (i < count) {
    body(i, FirstLanes{count - i});
  }
}

HWY_INLINE VecF32 splat(float value) {
  return hn::Set(kF32Tag, value);
}

HWY_INLINE VecF32 load(const float* from, AllLanes /*lanes*/) {
  return hn::LoadU(kF32Tag, from);
}

/// The lanes that take no part are zero.
HWY_INLINE VecF32 load(const float* from, FirstLanes lanes) {
#if HWY_TARGET <= HWY_AVX2
  const auto mask = hn::FirstN(kF32Tag, static_cast<std::size_t>(lanes.count));
  return hn::MaskedLoad(mask, kF32Tag, from);
#else
  // Without masks in the instruction set MaskedLoad would read the whole vector.
  HWY_ALIGN float copy[kLanes] = {};
  for (long i = 0; i < lanes.count; ++i) {
    copy[i] = from[i];
  }
  return hn::Load(kF32Tag, copy);
#endif
}

HWY_INLINE void store(VecF32 value, float* to, AllLanes /*lanes*/) {
  hn::StoreU(value, kF32Tag, to);
}

HWY_INLINE void store(VecF32 value, float* to, FirstLanes lanes) {
  hn::BlendedStore(value, hn::FirstN(kF32Tag, static_cast<std::size_t>(lanes.count)), kF32Tag, to);
}

using TagBits16 = hn::Rebind<std::uint16_t, TagF32>;
using TagBits32 = hn::RebindToUnsigned<TagF32>;

HWY_INLINE VecF32 widen(hn::Vec<TagBits16> bits) {
  return hn::BitCast(kF32Tag, hn::ShiftLeft<16>(hn::PromoteTo(TagBits32{}, bits)));
}

/// As to_bfloat16: to nearest, ties to even; a NaN stays a quiet NaN.
HWY_INLINE hn::Vec<TagBits16> narrow(VecF32 value) {
  constexpr TagBits32 kBits{};
  const auto bits = hn::BitCast(kBits, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kBits, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(kBits, 0x7fffU)));
  const auto quiet = hn::Or(bits, hn::Set(kBits, 0x400000U));
  const auto is_nan = hn::RebindMask(kBits, hn::IsNaN(value));
  const auto upper = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  // The values fit into 16 bits, so that the saturation of the signed conversion never happens.
  return hn::DemoteTo(TagBits16{}, hn::BitCast(hn::RebindToSigned<TagF32>{}, upper));
}

HWY_INLINE const std::uint16_t* bits_of(const BFloat16* from) {
  return reinterpret_cast<const std::uint16_t*>(from);
}

HWY_INLINE VecF32 load(const BFloat16* from, AllLanes /*lanes*/) {
  return widen(hn::LoadU(TagBits16{}, bits_of(from)));
}

// Below AVX-512 a masked access to 16-bit lanes touches the whole vector: tails go through a copy.
HWY_INLINE VecF32 load(const BFloat16* from, FirstLanes lanes) {
  HWY_ALIGN std::uint16_t copy[kLanes] = {};
  for (long i = 0; i < lanes.count; ++i) {
    copy[i] = from[i].bits;
  }
  return widen(hn::Load(TagBits16{}, copy));
}

HWY_INLINE void store(VecF32 value, BFloat16* to, AllLanes /*lanes*/) {
  hn::StoreU(narrow(value), TagBits16{}, reinterpret_cast<std::uint16_t*>(to));
}

HWY_INLINE void store(VecF32 value, BFloat16* to, FirstLanes lanes) {
  HWY_ALIGN std::uint16_t copy[kLanes];
  hn::Store(narrow(value), TagBits16{}, copy);
  for (long i = 0; i < lanes.count; ++i) {
    to[i].bits = copy[i];
  }
}

/// The value that a T in memory would hold.
template <typename T>
HWY_INLINE VecF32 round_to(VecF32 value) {
  if constexpr (sizeof(T) == sizeof(BFloat16)) {
    return widen(narrow(value));
  } else {
    return value;
  }
}

/// Zeroes the lanes that take no part, before a sum.
HWY_INLINE VecF32 keep(VecF32 value, AllLanes /*lanes*/) {
  return value;
}
HWY_INLINE VecF32 keep(VecF32 value, FirstLanes lanes) {
  return hn::IfThenElseZero(hn::FirstN(kF32Tag, static_cast<std::size_t>(lanes.count)), value);
}

/// Sum of the lanes, by halves: lane i with lane i + half, until one is left.
HWY_INLINE float sum_of_lanes(VecF32 value) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(value, kF32Tag, lanes);
  for (long half = kLanes / 2; half > 0; half /= 2) {
    for (long i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

/// e^x for x up to 88, within 2 ulp; 0 below -87.3, where the result would be subnormal; a NaN stays
/// one. x = n ln 2 + r with |r| <= ln(2) / 2; the polynomial for e^r has a relative error of 4e-9.
HWY_INLINE VecF32 exponential_up_to_88(VecF32 x) {
  // Added to a number below 2^22, this leaves its rounded value in the low bits, plus the bias of
  // an exponent: shifted up they are the float 2^n.
  constexpr float kRound = 12582912.0F + 127.0F;
  const VecF32 shifted = hn::MulAdd(x, splat(1.44269504088896341F), splat(kRound));
  const VecF32 n = hn::Sub(shifted, splat(kRound));
  VecF32 r = hn::NegMulAdd(n, splat(0.693359375F), x);
  r = hn::NegMulAdd(n, splat(-2.121944417e-4F), r);
  VecF32 p = hn::MulAdd(r, splat(1.393378945e-3F), splat(8.369266987e-3F));
  p = hn::MulAdd(p, r, splat(4.166647792e-2F));
  p = hn::MulAdd(p, r, splat(1.666651517e-1F));
  p = hn::MulAdd(p, r, splat(0.5F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), splat(1.0F));
  const VecF32 power = hn::BitCast(kF32Tag, hn::ShiftLeft<23>(hn::BitCast(TagBits32{}, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, splat(-87.3F)), hn::Mul(p, power));
}

/// e^x, as above, and infinity above 88.
HWY_INLINE VecF32 exponential(VecF32 x) {
  const VecF32 infinity = splat(std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Gt(x, splat(88.0F)), infinity, exponential_up_to_88(x));
}

/// 1 / (1 + e^-x) within 3 ulp down to x = -88, then 0.
HWY_INLINE VecF32 sigmoid(VecF32 x) {
  const VecF32 one = splat(1.0F);
  return hn::Div(one, hn::Add(one, exponential(hn::Neg(x))));
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
