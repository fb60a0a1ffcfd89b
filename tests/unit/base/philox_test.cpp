#include "base/philox.h"

#include <cmath>
#include <vector>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("philox gives the known answers of its authors") {
  // Known-answer tests of Random123 (kat_vectors, philox4x32 10).
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("normal numbers have mean 0 and variance 1") {
  constexpr int kCount = 100000;
  const RandomStream stream(1, RandomPurpose::kTest, site_of("normal"));
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.normal(i);
    sum += x;
    squares += x * x;
  }

  // Five standard deviations of the mean and of the variance of a standard normal sample.
  CHECK(std::abs(sum / kCount) < 5.0 / std::sqrt(kCount));
  CHECK(std::abs(squares / kCount - 1.0) < 5.0 * std::sqrt(2.0 / kCount));
}

TEST_CASE("streams of different seeds, purposes and sites differ") {
  const RandomStream base(1, RandomPurpose::kTest, 7);
  CHECK(base.bits(0) == RandomStream(1, RandomPurpose::kTest, 7).bits(0));
  CHECK(base.bits(0) != RandomStream(2, RandomPurpose::kTest, 7).bits(0));
  CHECK(base.bits(0) != RandomStream(1, RandomPurpose::kDropout, 7).bits(0));
  CHECK(base.bits(0) != RandomStream(1, RandomPurpose::kTest, 8).bits(0));
}

TEST_CASE("filling a range gives the numbers of its indices, wherever it starts") {
  const RandomStream stream(3, RandomPurpose::kTest, 1);
  for (std::uint64_t first = 0; first < 9; ++first) {
    std::vector<float> uniform(7);
    std::vector<float> normal(7);

    stream.fill_uniform(first, uniform);
    stream.fill_normal(first, normal);

    for (std::uint64_t i = 0; i < 7; ++i) {
      CHECK(uniform[i] == stream.uniform(first + i));
      CHECK(normal[i] == stream.normal(first + i));
    }
  }
}

}  // namespace lockstep
