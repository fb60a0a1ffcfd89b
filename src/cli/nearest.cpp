#include "cli/nearest.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t kLongestName = 128;

// Costs in halves of an edit.
constexpr std::size_t kEdit = 2;
constexpr std::size_t kAbbreviation = 2;   // "num" for "n", "layers" for "layer"
constexpr std::size_t kMostOfLacking = 4;  // a word that was left out
constexpr std::size_t kMostOfSurplus = 6;  // a word too many
constexpr std::size_t kNoSection = 2;
constexpr std::size_t kOtherSection = 5;  // above two edits within the section
constexpr std::size_t kOtherName = 1;     // below a misspelt key

// What other programs call these keys, where no word of ours is in it or the wrong one is nearer.
constexpr OtherName kOtherNames[] = {
    {"learning_rate", "optimizer.lr"},
    {"max_lr", "optimizer.lr"},
    {"min_learning_rate", "lr_schedule.min_lr"},
    {"lr_scheduler_type", "lr_schedule.name"},
    {"wd", "optimizer.weight_decay"},
    {"clip_grad", "optimizer.grad_clip"},
    {"max_grad_norm", "optimizer.grad_clip"},
    {"gradient_clipping", "optimizer.grad_clip"},
    {"d_model", "model.hidden_size"},
    {"n_embd", "model.hidden_size"},
    {"embed_dim", "model.hidden_size"},
    {"depth", "model.num_layers"},
    {"block_size", "model.seq_length"},
    {"context_length", "model.seq_length"},
    {"max_seq_len", "model.seq_length"},
    {"max_position_embeddings", "model.seq_length"},
    {"num_key_value_heads", "model.num_kv_heads"},
    {"intermediate_size", "model.ffn_hidden_size"},
    {"n_inner", "model.ffn_hidden_size"},
    {"max_steps", "train.steps"},
    {"max_iters", "train.steps"},
    {"gradient_accumulation_steps", "train.micro_batch_size"},
    {"eval_every", "train.eval_interval"},
    {"dataset", "data.train"},
    {"dtype", "run.precision"},
    {"save_every", "checkpoint.interval"},
    {"save_steps", "checkpoint.interval"},
    {"save_interval", "checkpoint.interval"},
    {"tensor_parallel_size", "parallel.tensor"},
    {"pipeline_parallel_size", "parallel.pipeline"},
    {"max_new_tokens", "generate.max_tokens"},
};

struct Name {
  std::string_view section;  // "" without one
  std::string_view key;
};

Name split(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? Name{"", name}
                                       : Name{name.substr(0, dot), name.substr(dot + 1)};
}

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("._-"), name.size());
    if (end > 0) {
      words.push_back(name.substr(0, end));
    }
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return words;
}

std::size_t word_cost(std::string_view a, std::string_view b) {
  if (a == b) {
    return 0;
  }
  const bool abbreviated = a.starts_with(b) || b.starts_with(a);
  return abbreviated ? kAbbreviation : kEdit * edit_distance(a, b);
}

// What it costs to make the words of `known` of those of `wanted`, in their order.
std::size_t words_cost(const std::vector<std::string_view>& wanted,
                       const std::vector<std::string_view>& known) {
  std::vector<std::size_t> before(known.size() + 1);
  for (std::size_t j = 1; j <= known.size(); ++j) {
    before[j] = before[j - 1] + std::min(kEdit * known[j - 1].size(), kMostOfLacking);
  }
  for (const std::string_view word : wanted) {
    const std::size_t surplus = std::min(kEdit * word.size(), kMostOfSurplus);
    std::vector<std::size_t> now{before[0] + surplus};
    for (std::size_t j = 1; j <= known.size(); ++j) {
      const std::size_t lacking = std::min(kEdit * known[j - 1].size(), kMostOfLacking);
      now.push_back(std::min({before[j - 1] + word_cost(word, known[j - 1]),
                              before[j] + surplus,
                              now[j - 1] + lacking}));
    }
    before = std::move(now);
  }
  return before.back();
}

std::size_t section_cost(std::string_view wanted, std::string_view known) {
  if (wanted == known) {
    return 0;
  }
  return wanted.empty() ? kNoSection : kOtherSection;
}

std::size_t cost_of(std::string_view wanted, std::string_view candidate) {
  const Name typed = split(wanted);
  const Name known = split(candidate);
  const std::size_t in_key = std::min(kEdit * edit_distance(typed.key, known.key),
                                      words_cost(words_of(typed.key), words_of(known.key)));
  std::size_t cost = std::min({kEdit * edit_distance(wanted, candidate),
                               words_cost(words_of(wanted), words_of(candidate)),
                               in_key + section_cost(typed.section, known.section)});
  for (const OtherName& other : kOtherNames) {
    if (other.key != candidate) {
      continue;
    }
    // One edit in three letters, or anything short would be near "wd".
    const std::size_t edits = edit_distance(typed.key, other.name);
    if (3 * edits <= other.name.size()) {
      cost = std::min(cost, kOtherName + kEdit * edits);
    }
  }
  return cost;
}

}  // namespace

std::span<const OtherName> other_names() {
  return kOtherNames;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& {
    return table[i * width + j];
  };
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = i + j;
        continue;
      }
      const std::size_t substituted = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return table.back();
}

std::string nearest_key(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string_view wanted = name.substr(0, kLongestName);
  std::string best;
  std::size_t best_cost = 0;
  for (const std::string& candidate : candidates) {
    const std::size_t cost = cost_of(wanted, candidate);
    if (best.empty() || cost < best_cost) {
      best = candidate;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace lockstep
