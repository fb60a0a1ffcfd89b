#include "base/float16.h"

#include <cmath>
#include <limits>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("every finite half becomes sign * mantissa * 2^exponent") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const int exponent = static_cast<int>((bits >> 10U) & 0x1fU);
    if (exponent == 0x1f) {
      continue;
    }
    const int mantissa = static_cast<int>(bits & 0x3ffU) + (exponent == 0 ? 0 : 0x400);
    const double magnitude = std::ldexp(mantissa, std::max(exponent, 1) - 25);

    const float value = to_float(Float16{static_cast<std::uint16_t>(bits)});

    REQUIRE(static_cast<double>(std::fabs(value)) == magnitude);
    REQUIRE(std::signbit(value) == ((bits & 0x8000U) != 0));
  }
}

TEST_CASE("infinities and NaNs of half precision stay what they are") {
  CHECK(to_float(Float16{0x7c00}) == std::numeric_limits<float>::infinity());
  CHECK(to_float(Float16{0xfc00}) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(to_float(Float16{0x7c01})));
  CHECK(std::isnan(to_float(Float16{0xfe00})));
}

}  // namespace lockstep
