#include "cli/validate.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"
#include "cli/key_table.h"

namespace lockstep {
namespace {

// "1, 2, 3, 6": for messages about what divides.
std::string divisors_of(long number) {
  constexpr std::size_t kMostShown = 24;
  std::vector<long> small;
  std::vector<long> large;
  for (long i = 1; i * i <= number; ++i) {
    if (number % i == 0) {
      small.push_back(i);
      if (i != number / i) {
        large.push_back(number / i);
      }
    }
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  const bool whole = small.size() <= kMostShown;
  small.resize(std::min(small.size(), kMostShown));
  return fmt::format("{}{}", fmt::join(small, ", "), whole ? "" : ", ...");
}

void check_heads(const Configuration& config) {
  const ModelConfig& model = config.model;
  if (model.hidden_size % model.num_heads != 0) {
    throw_request_error("{} does not divide {}; valid: {}",
                        describe_setting(config, "model.num_heads"),
                        describe_setting(config, "model.hidden_size"),
                        divisors_of(model.hidden_size));
  }
  if (model.num_kv_heads != 0 && model.num_heads % model.num_kv_heads != 0) {
    throw_request_error("{} does not divide {}; valid: 0 (as num_heads), {}",
                        describe_setting(config, "model.num_kv_heads"),
                        describe_setting(config, "model.num_heads"),
                        divisors_of(model.num_heads));
  }
  if (model.architecture == "gpt2" && model.num_kv_heads != 0 &&
      model.num_kv_heads != model.num_heads) {
    throw_request_error("{}: gpt2 has as many key and value heads as heads; valid: 0, {}",
                        describe_setting(config, "model.num_kv_heads"),
                        model.num_heads);
  }
  const long head_dim = model.hidden_size / model.num_heads;
  if (model.architecture == "llama" && head_dim % 2 != 0) {
    throw_request_error("{}: rotary positions need an even head size, and {} / {} = {} is odd",
                        describe_setting(config, "model.num_heads"),
                        model.hidden_size,
                        model.num_heads,
                        head_dim);
  }
}

// A fresh network and the samples it is given must be of one kind.
void check_kind_of_data(const Configuration& config) {
  const bool images = config.model.architecture == "mlp";
  if (config.data.kind == (images ? "tokens" : "images")) {
    throw_request_error("{} does not fit {}; valid: {} | synthetic",
                        describe_setting(config, "data.kind"),
                        describe_setting(config, "model.architecture"),
                        images ? "images" : "tokens");
  }
}

// What not every kind of network can do.
void check_model_options(const Configuration& config) {
  if (config.model.dropout > 0 && config.model.architecture != "gpt2") {
    throw_request_error("{}: {} has no dropout; valid: 0, or model.architecture = \"gpt2\"",
                        describe_setting(config, "model.dropout"),
                        describe_setting(config, "model.architecture"));
  }
  if (config.model.architecture != "mlp") {
    return;
  }
  if (config.train.recompute != "none") {
    throw_request_error("{}: an mlp keeps nothing that could be computed again; valid: none",
                        describe_setting(config, "train.recompute"));
  }
  if (config.parallel.sequence) {
    throw_request_error("{}: images are no sequences; valid for an mlp: false",
                        describe_setting(config, "parallel.sequence"));
  }
}

// The two parts of a backward pass lie apart: what a block kept from running forward again for the first
// would have to be kept for the second, or made a third time.
void check_recomputation(const Configuration& config) {
  const ParallelConfig& parallel = config.parallel;
  if (config.train.recompute == "full" && parallel.schedule == "zero-bubble" &&
      parallel.pipeline > 1) {
    throw_request_error(
        "{} does not go with {} and {}: its two backward passes would each run every block forward "
        "again; valid: none | selective, or parallel.schedule = \"1f1b\"",
        describe_setting(config, "train.recompute"),
        describe_setting(config, "parallel.schedule"),
        describe_setting(config, "parallel.pipeline"));
  }
}

bool is_step_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return false;
  }
  const auto number = [](std::string_view digits) {
    long value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc{} && end == digits.data() + digits.size() ? value : -1;
  };
  const long begin = number(text.substr(0, colon));
  return begin >= 0 && number(text.substr(colon + 1)) > begin;
}

void check_schedule(const Configuration& config) {
  const LrScheduleConfig& schedule = config.lr_schedule;
  if (schedule.name != "wsd" || config.train.steps == 0) {
    return;
  }
  const long most = std::max(config.train.steps - schedule.warmup_steps, 0L);
  if (schedule.decay_steps > most) {
    throw_request_error("{}: with {} and {} valid are 0 to {}",
                        describe_setting(config, "lr_schedule.decay_steps"),
                        describe_setting(config, "train.steps"),
                        describe_setting(config, "lr_schedule.warmup_steps"),
                        most);
  }
}

}  // namespace

void resolve_length(Configuration& config) {
  TrainConfig& train = config.train;
  const bool steps = config.is_set("train.steps") && train.steps != 0;
  const bool epochs = config.is_set("train.epochs") && train.epochs != 0;
  if (steps && epochs) {
    throw_request_error("{} and {}: give one of them, or set the other to 0",
                        describe_setting(config, "train.steps"),
                        describe_setting(config, "train.epochs"));
  }
  if (epochs) {
    train.steps = 0;
  }
  if (train.steps == 0 && train.epochs == 0) {
    throw_request_error("{} and {}: one of them must be at least 1",
                        describe_setting(config, "train.steps"),
                        describe_setting(config, "train.epochs"));
  }
}

void check_available(const Configuration& config) {
  for (const Key& key : key_table()) {
    const Value value = key.get(config);
    if (is_available(key, value)) {
      continue;
    }
    std::vector<std::string_view> available = restriction_of(key)->available;
    const std::string fallback = to_toml(key.default_value);
    if (available.empty()) {
      available.emplace_back(fallback);
    }
    throw_request_error("{} is not yet available; available: {}",
                        describe_setting(config, key.full_name()),
                        fmt::join(available, " | "));
  }
}

void check_model(const Configuration& config) {
  if (config.model.architecture != "mlp") {
    check_heads(config);
  } else if (config.model.layer_sizes.size() < 2) {
    throw_request_error("{}: expected at least two sizes, inputs and classes, like [784, 10]",
                        describe_setting(config, "model.layer_sizes"));
  }
  check_kind_of_data(config);
  check_model_options(config);
}

void check_configuration(Configuration& config) {
  resolve_length(config);
  check_available(config);
  if (config.model.init_from.empty()) {
    check_model(config);
  }
  check_schedule(config);
  check_recomputation(config);
  if (!config.log.trace.empty() && !is_step_range(config.log.trace)) {
    throw_request_error(
        "{}: expected FIRST:END, two steps with FIRST below END, like \"12:14\"; \"\": none",
        describe_setting(config, "log.trace"));
  }
}

void check_needed_keys(Command command, const Configuration& config) {
  const auto need = [&config](std::string_view name, std::string_view what) {
    const Key* key = find_key(name);
    if (std::get<std::string>(key->get(config)).empty()) {
      throw_request_error(
          "{} must be set: {} (--{} VALUE, or in the configuration file)", name, what, name);
    }
  };
  if (command == Command::kTrain && config.data.kind != "synthetic") {
    need("data.train",
         config.data.kind == "images" ? "the folder of the four IDX files"
                                      : "a token file or a glob of shards");
  }
  if (command == Command::kTokenize) {
    need("tokenize.input", "a glob of text files");
    need("tokenize.output", "the token file to write");
    need("data.tokenizer", "a folder, a file or bytes");
  }
}

std::vector<std::string> warnings_about(const Configuration& config) {
  std::vector<std::string> lines;
  const LrScheduleConfig& schedule = config.lr_schedule;
  if (schedule.name != "constant" && schedule.min_lr > config.optimizer.lr) {
    lines.push_back(fmt::format("{} is above {}: the learning rate rises towards it",
                                describe_setting(config, "lr_schedule.min_lr"),
                                describe_setting(config, "optimizer.lr")));
  }
  if (config.parallel.reduction == "native" && config.parallel.zero_stage > 0) {
    lines.push_back(
        fmt::format("{}: with {} gradients are scattered, which is done in order all the same",
                    describe_setting(config, "parallel.reduction"),
                    describe_setting(config, "parallel.zero_stage")));
  }
  return lines;
}

}  // namespace lockstep
