// Which activations dropout drops: a pure function of their place in the model and in the training, never of
// a rank (Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014).
//
// Constant expressions in plain C++, so that host and device code share them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/philox.h"

namespace lockstep {

/// Where a transformer drops activations. Part of the masks' keys: never renumber.
enum class DropoutSite : std::uint32_t {
  kEmbedding = 1,
  kAttention = 2,   ///< probabilities, before their product with the values
  kProjection = 3,  ///< what attention adds to the residual
  kFeedForward = 4  ///< what the feed-forward part adds to it
};

/// The mask of one site, layer and head in one step. Elements of a sample (its number in the global batch)
/// and a token (its number in the whole sequence) are features, or keys, numbered from 0.
struct DropoutMask {
  std::array<std::uint32_t, 2> key{};
  std::uint32_t step = 0;
  std::uint32_t threshold = 0;  ///< elements whose word is below it are dropped
  float scale = 1.0F;           ///< of those that are kept: 1 / (1 - probability)

  /// The words of elements 4 * group to 4 * group + 3: one call of Philox.
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> words(long sample,
                                                             long token,
                                                             long group) const {
    return philox4x32({step,
                       static_cast<std::uint32_t>(sample),
                       static_cast<std::uint32_t>(token),
                       static_cast<std::uint32_t>(group)},
                      key);
  }
  /// What an element is multiplied by: 0 or `scale`.
  [[nodiscard]] constexpr float factor(long sample, long token, long element) const {
    const std::uint32_t word =
        words(sample, token, element / 4)[static_cast<std::size_t>(element % 4)];
    return word < threshold ? 0.0F : scale;
  }
};

/// What masks are made from.
struct DropoutSource {
  double probability = 0;  ///< of dropping an element, below 1; 0: nothing is dropped
  std::uint64_t seed = 0;
  long step = 0;  ///< steps of the training before this one
  DropoutSite site = DropoutSite::kEmbedding;
  long layer = 0;

  [[nodiscard]] constexpr bool drops() const { return probability > 0; }
  /// `head` counts over the whole layer; 0 where a site has none.
  [[nodiscard]] constexpr DropoutMask mask(long head = 0) const {
    const std::uint32_t purpose = static_cast<std::uint32_t>(RandomPurpose::kDropout) |
                                  static_cast<std::uint32_t>(site) << 16U;
    const auto mixed = random_key(
        seed, purpose, static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(head));
    return {
        .key = {mixed[0], mixed[1]},
        .step = static_cast<std::uint32_t>(step),
        .threshold = static_cast<std::uint32_t>(std::min(probability * 0x1p32 + 0.5, 0x1p32 - 1)),
        .scale = static_cast<float>(1.0 / (1.0 - probability))};
  }
};

}  // namespace lockstep
