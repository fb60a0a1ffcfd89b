// Counter-based random numbers: a pure function of what is drawn, never of who draws it.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lockstep {

/// What a random number is for: one independent stream each. Values are part of the file formats:
/// never renumber them.
enum class RandomPurpose : std::uint32_t {
  kInitialisation = 1,
  kSampleOrder = 2,
  kDropout = 3,
  kSynthetic = 4,
  kSampling = 5,
  kTest = 6,
};

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::array<std::uint32_t, 2> kPhiloxFactors{0xD2511F53U, 0xCD9E8D57U};
inline constexpr std::array<std::uint32_t, 2> kPhiloxKeySteps{0x9E3779B9U, 0xBB67AE85U};

/// The 128 random bits at one counter under one key. A constant expression: device code calls it, too.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxFactors[0]} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxFactors[1]} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kPhiloxKeySteps[0];
    key[1] += kPhiloxKeySteps[1];
  }
  return counter;
}

/// Folds what a stream is for through Philox itself: nearby streams get unrelated keys. `purpose` is a
/// RandomPurpose, perhaps with bits of the stream's own above the lower 16.
constexpr std::array<std::uint32_t, 4> random_key(std::uint64_t seed,
                                                  std::uint32_t purpose,
                                                  std::uint32_t stream_low,
                                                  std::uint32_t stream_high) {
  return philox4x32({stream_low, stream_high, purpose, 0x4c4f434bU},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
}

/// A stream of random numbers that can be entered anywhere.
class RandomStream {
 public:
  /// `site` names the layer, parameter or epoch, so that streams of one purpose do not overlap.
  RandomStream(std::uint64_t seed, RandomPurpose purpose, std::uint64_t site);

  /// 32 uniform random bits for element `index`.
  [[nodiscard]] std::uint32_t bits(std::uint64_t index) const;

  /// Uniform in [0, 1) with 24 bits.
  [[nodiscard]] float uniform(std::uint64_t index) const;

  /// Standard normal (Box-Muller in f64, rounded once).
  [[nodiscard]] float normal(std::uint64_t index) const;

  /// out[i] = uniform(first + i) or normal(first + i), at a quarter or half of the cost.
  void fill_uniform(std::uint64_t first, std::span<float> out) const;
  void fill_normal(std::uint64_t first, std::span<float> out) const;

 private:
  [[nodiscard]] std::array<std::uint32_t, 4> block(std::uint64_t index, std::uint32_t kind) const;
  /// The normal numbers 2 * pair and 2 * pair + 1.
  [[nodiscard]] std::array<float, 2> normal_pair(std::uint64_t pair) const;

  std::array<std::uint32_t, 2> key_{};
  std::uint32_t high_ = 0;
};

/// A 64-bit hash of a name, for use as a site. FNV-1a: stable across builds and machines.
constexpr std::uint64_t site_of(const char* name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (; *name != '\0'; ++name) {
    hash = (hash ^ static_cast<std::uint8_t>(*name)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace lockstep
