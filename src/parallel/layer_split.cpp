#include "parallel/layer_split.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What a stage costs with some layers.
struct StageCosts {
  std::size_t stages = 1;
  double first = 0;
  double last = 0;

  [[nodiscard]] double operator()(std::size_t stage, std::size_t layers) const {
    return static_cast<double>(layers) + (stage == 0 ? first : 0) +
           (stage + 1 == stages ? last : 0);
  }
};

// table[s][n]: the least that join(a stage's cost, the rest) gives for stages s.. over the last n layers,
// where no stage may cost more than `limit`.
using CostTable = std::vector<std::vector<double>>;

template <typename Join>
CostTable least_costs(const StageCosts& cost, std::size_t layers, double limit, Join join) {
  CostTable table(cost.stages + 1, std::vector<double>(layers + 1, kNever));
  table[cost.stages][0] = 0;
  for (std::size_t stage = cost.stages; stage-- > 0;) {
    for (std::size_t left = 1; left <= layers; ++left) {
      double& least = table[stage][left];
      for (std::size_t size = 1; size <= left && cost(stage, size) <= limit; ++size) {
        least = std::min(least, join(cost(stage, size), table[stage + 1][left - size]));
      }
    }
  }
  return table;
}

}  // namespace

std::vector<IndexRange> split_layers(long num_layers, int stages, double first, double last) {
  LOCKSTEP_CHECK(stages >= 1 && stages <= num_layers);
  const auto layers = static_cast<std::size_t>(num_layers);
  const StageCosts cost{static_cast<std::size_t>(stages), first, last};
  const auto larger = [](double own, double rest) { return std::max(own, rest); };
  const auto squares = [](double own, double rest) { return own * own + rest; };
  const double limit = least_costs(cost, layers, kNever, larger)[0][layers];
  const CostTable least = least_costs(cost, layers, limit, squares);
  std::vector<IndexRange> ranges;
  std::size_t left = layers;
  for (std::size_t stage = 0; stage < cost.stages; ++stage) {
    std::size_t size = 1;
    while (squares(cost(stage, size), least[stage + 1][left - size]) > least[stage][left]) {
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
