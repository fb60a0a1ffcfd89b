#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

// The last word of the counter keeps the two kinds of numbers of a stream apart.
constexpr std::uint32_t kUniformKind = 0;
constexpr std::uint32_t kNormalKind = 1;

constexpr float to_uniform(std::uint32_t bits) {
  return static_cast<float>(bits >> 8U) * 0x1p-24F;
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, RandomPurpose purpose, std::uint64_t site) {
  const auto mixed = random_key(seed,
                                static_cast<std::uint32_t>(purpose),
                                static_cast<std::uint32_t>(site),
                                static_cast<std::uint32_t>(site >> 32U));
  key_ = {mixed[0], mixed[1]};
  high_ = mixed[2];
}

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t index, std::uint32_t kind) const {
  return philox4x32(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U), high_, kind},
      key_);
}

std::uint32_t RandomStream::bits(std::uint64_t index) const {
  return block(index / 4, kUniformKind)[index % 4];
}

float RandomStream::uniform(std::uint64_t index) const {
  return to_uniform(bits(index));
}

std::array<float, 2> RandomStream::normal_pair(std::uint64_t pair) const {
  const auto random = block(pair, kNormalKind);
  const double u = (random[0] + 0.5) * 0x1p-32;  // never 0, so the logarithm is finite
  const double v = random[1] * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * v;
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

float RandomStream::normal(std::uint64_t index) const {
  return normal_pair(index / 2)[index % 2];
}

void RandomStream::fill_uniform(std::uint64_t first, std::span<float> out) const {
  std::array<std::uint32_t, 4> random{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t index = first + i;
    if (i == 0 || index % 4 == 0) {
      random = block(index / 4, kUniformKind);
    }
    out[i] = to_uniform(random[index % 4]);
  }
}

void RandomStream::fill_normal(std::uint64_t first, std::span<float> out) const {
  std::array<float, 2> pair{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t index = first + i;
    if (i == 0 || index % 2 == 0) {
      pair = normal_pair(index / 2);
    }
    out[i] = pair[index % 2];
  }
}

}  // namespace lockstep
