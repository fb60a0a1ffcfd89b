#include "cli/configuration.h"

#include "base/error.h"
#include "cli/key_table.h"

namespace lockstep {

std::string describe_setting(const Configuration& config, std::string_view key) {
  const Key* found = find_key(key);
  LOCKSTEP_CHECK(found != nullptr);
  const std::string value = to_toml(found->get(config));
  const auto origin = config.origins.find(key);
  if (origin != config.origins.end()) {
    return fmt::format("{} = {}", origin->second, value);
  }
  return fmt::format("{} = {} (default)", key, value);
}

std::string to_toml(const Configuration& config) {
  std::string text;
  std::string_view section;
  for (const Key& key : key_table()) {
    if (key.section != section) {
      section = key.section;
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", key.name, to_toml(key.get(config)));
  }
  return text;
}

TrainingConfig training_config(const Configuration& config) {
  return {.model = config.model,
          .data = config.data,
          .train = config.train,
          .run = config.run,
          .parallel = config.parallel,
          .optimizer = config.optimizer,
          .lr_schedule = config.lr_schedule,
          .checkpoint = config.checkpoint,
          .fault = config.fault,
          .log = config.log,
          .text = to_toml(config)};
}

}  // namespace lockstep
