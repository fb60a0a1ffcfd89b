#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace lockstep {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = 0xD2511F53ULL * counter[0];
    const std::uint64_t product1 = 0xCD9E8D57ULL * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, RandomPurpose purpose, std::uint64_t site) {
  // The site is folded through Philox itself: nearby sites give unrelated keys.
  const auto mixed =
      philox4x32({static_cast<std::uint32_t>(site),
                  static_cast<std::uint32_t>(site >> 32U),
                  static_cast<std::uint32_t>(purpose),
                  0x4c4f434bU},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  key_ = {mixed[0], mixed[1]};
  high_ = mixed[2];
}

std::uint32_t RandomStream::bits(std::uint64_t index) const {
  const std::uint64_t block = index / 4;
  return philox4x32(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U), high_, 0},
      key_)[index % 4];
}

float RandomStream::uniform(std::uint64_t index) const {
  return static_cast<float>(bits(index) >> 8U) * 0x1p-24F;
}

float RandomStream::normal(std::uint64_t index) const {
  const std::uint64_t pair = index / 2;
  const auto random = philox4x32(
      {static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32U), high_, 1}, key_);
  const double u = (random[0] + 0.5) * 0x1p-32;  // never 0, so the logarithm is finite
  const double v = random[1] * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * v;
  return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

}  // namespace lockstep
