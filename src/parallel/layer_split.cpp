#include "parallel/layer_split.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/error.h"

namespace lockstep {

std::vector<IndexRange> split_layers(long num_layers, int stages, double first, double last) {
  LOCKSTEP_CHECK(stages >= 1 && stages <= num_layers);
  const auto layers = static_cast<std::size_t>(num_layers);
  const auto count = static_cast<std::size_t>(stages);
  const auto cost = [&](std::size_t stage, std::size_t size) {
    return static_cast<double>(size) + (stage == 0 ? first : 0) + (stage + 1 == count ? last : 0);
  };
  // Of stages s.. over the last n layers: the least largest cost, then under that limit the least sum of
  // squares.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  using Table = std::vector<std::vector<double>>;
  const auto fill = [&](const auto& join, double limit) {
    Table best(count + 1, std::vector<double>(layers + 1, kNever));
    best[count][0] = 0;
    for (std::size_t stage = count; stage-- > 0;) {
      for (std::size_t left = 1; left <= layers; ++left) {
        for (std::size_t size = 1; size <= left; ++size) {
          const double own = cost(stage, size);
          if (own <= limit) {
            best[stage][left] =
                std::min(best[stage][left], join(own, best[stage + 1][left - size]));
          }
        }
      }
    }
    return best;
  };
  const auto larger = [](double own, double rest) { return std::max(own, rest); };
  const auto squares = [](double own, double rest) { return own * own + rest; };
  const double limit = fill(larger, kNever)[0][layers];
  const Table best = fill(squares, limit);
  std::vector<IndexRange> ranges;
  std::size_t left = layers;
  for (std::size_t stage = 0; stage < count; ++stage) {
    std::size_t size = 1;
    while (cost(stage, size) > limit ||
           squares(cost(stage, size), best[stage + 1][left - size]) > best[stage][left]) {
      ++size;
    }
    const auto begin = static_cast<long>(layers - left);
    ranges.push_back({begin, begin + static_cast<long>(size)});
    left -= size;
  }
  return ranges;
}

std::vector<ModelPart> split_model(const ModelConfig& model, int stages) {
  const double hidden = static_cast<double>(model.hidden_size);
  const double kv_share = model.num_kv_heads > 0 ? static_cast<double>(model.num_kv_heads) /
                                                       static_cast<double>(model.num_heads)
                                                 : 1.0;
  const bool gated = model.architecture == "llama";
  const double ffn = model.ffn_hidden_size > 0 ? static_cast<double>(model.ffn_hidden_size)
                     : gated                   ? 8.0 * hidden / 3.0
                                               : 4.0 * hidden;
  // Multiply-adds a token: products, and attention with half of the keys.
  const double layer = hidden * (2 * hidden + 2 * kv_share * hidden + (gated ? 3 : 2) * ffn) +
                       hidden * static_cast<double>(model.seq_length);
  const double head = hidden * static_cast<double>(model.vocab_size);
  std::vector<ModelPart> parts;
  for (const IndexRange& range : split_layers(model.num_layers, stages, 0, head / layer)) {
    parts.push_back({.first_layer = static_cast<int>(range.begin),
                     .end_layer = static_cast<int>(range.end),
                     .embeds = range.begin == 0,
                     .has_head = range.end == model.num_layers});
  }
  return parts;
}

}  // namespace lockstep
