// The table of every configuration key. Flags, files, help and the printed configuration read it.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/configuration.h"
#include "cli/value.h"

namespace lockstep {

/// The values a key accepts. With `choices`, only those; else numbers from `low` to `high`. The
/// elements of a list must each be allowed. Numbers must be finite.
struct Allowed {
  std::vector<std::string_view> choices;
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();
  bool low_excluded = false;
  bool high_excluded = false;
  bool may_be_empty = true;  // text
};

/// One key. Everything that is known about it stands here.
struct Key {
  std::string_view section;
  std::string_view name;
  std::string_view help;
  Allowed allowed;
  Value default_value;
  Value (*get)(const Configuration&) = nullptr;
  void (*set)(Configuration&, const Value&) = nullptr;

  [[nodiscard]] std::string full_name() const;
  [[nodiscard]] ValueType type() const { return type_of(default_value); }
};

/// All keys, section by section in the order of the configuration file. Built once.
const std::vector<Key>& key_table();

/// A key, or a whole section, of which the program cannot do everything yet. An empty `available`
/// stands for the default alone.
struct NotYetAvailable {
  std::string_view key_or_section;
  std::vector<std::string_view> available;
};

/// What is not yet available. Removing a line makes that capability available.
const std::vector<NotYetAvailable>& not_yet_available();

/// The entry that restricts `key`; null when there is none.
const NotYetAvailable* restriction_of(const Key& key);

/// Whether `value`, which must be allowed, is among the values of `key` that there are already.
bool is_available(const Key& key, const Value& value);

/// The key called `full_name` ("train.steps"); null when there is none.
const Key* find_key(std::string_view full_name);

bool is_section(std::string_view name);

/// The full names of all keys.
std::vector<std::string> key_names();

/// What a message says was expected: "an integer from 1 to 2147483647", "mlp | gpt2 | llama".
std::string describe_allowed(const Key& key);

/// Sets `key` after checking `value`, which must be of its type, and records `origin`
/// ("run.toml:12: train.steps"). Throws RequestError naming the origin, the value and what is
/// allowed.
void set_value(Configuration& config,
               const Key& key,
               const Value& value,
               const std::string& origin);

/// Throws the RequestError of a value that cannot be one of `key`: "ORIGIN = FOUND: expected ...".
[[noreturn]] void refuse_value(const Key& key, const std::string& origin, std::string_view found);

}  // namespace lockstep
