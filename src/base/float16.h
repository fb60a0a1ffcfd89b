// IEEE half precision as a storage type: read from files only.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// A half-precision number in memory. Arithmetic happens in float.
struct Float16 {
  std::uint16_t bits = 0;
};

/// Exact for every value; infinities and NaNs stay what they are.
constexpr float to_float(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (value.bits >> 10U) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, a normal float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide_exponent = exponent == 0x1fU ? 0xffU : exponent + 127U - 15U;
  return std::bit_cast<float>(sign | wide_exponent << 23U | mantissa << 13U);
}

}  // namespace lockstep
