#include "cli/key_table.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestShownValue = 80;

bool is_allowed_number(const Allowed& allowed, double number) {
  const bool above = allowed.low_excluded ? number > allowed.low : number >= allowed.low;
  const bool below = allowed.high_excluded ? number < allowed.high : number <= allowed.high;
  return std::isfinite(number) && above && below;
}

struct AllowedCheck {
  const Allowed& allowed;

  bool operator()(bool /*value*/) const { return true; }
  bool operator()(long value) const {
    return is_allowed_number(allowed, static_cast<double>(value));
  }
  bool operator()(double value) const { return is_allowed_number(allowed, value); }
  bool operator()(const std::string& value) const { return allowed.may_be_empty || !value.empty(); }
  template <typename T>
  bool operator()(const std::vector<T>& values) const {
    return std::all_of(values.begin(), values.end(), *this);
  }
};

bool contains(const std::vector<std::string_view>& choices, const std::string& spelled) {
  return std::find(choices.begin(), choices.end(), spelled) != choices.end();
}

bool is_allowed(const Key& key, const Value& value) {
  if (!key.allowed.choices.empty()) {
    return contains(key.allowed.choices, to_plain(value));
  }
  return std::visit(AllowedCheck{key.allowed}, value);
}

std::string describe_range(const Allowed& allowed, bool integer) {
  const auto spelled = [integer](double limit) {
    return integer ? fmt::format("{}", static_cast<long>(limit)) : fmt::format("{}", limit);
  };
  if (integer) {
    return fmt::format("from {} to {}", spelled(allowed.low), spelled(allowed.high));
  }
  std::string text;
  if (allowed.low > std::numeric_limits<double>::lowest()) {
    text = (allowed.low_excluded ? "above " : "of at least ") + spelled(allowed.low);
  }
  if (allowed.high < std::numeric_limits<double>::max()) {
    text += text.empty() ? "" : " and ";
    text += (allowed.high_excluded ? "below " : "at most ") + spelled(allowed.high);
  }
  return text;
}

}  // namespace

std::string Key::full_name() const {
  return fmt::format("{}.{}", section, name);
}

const NotYetAvailable* restriction_of(const Key& key) {
  const std::string name = key.full_name();
  for (const NotYetAvailable& entry : not_yet_available()) {
    if (entry.key_or_section == name || entry.key_or_section == key.section) {
      return &entry;
    }
  }
  return nullptr;
}

bool is_available(const Key& key, const Value& value) {
  const NotYetAvailable* entry = restriction_of(key);
  return entry == nullptr || value == key.default_value ||
         contains(entry->available, to_plain(value));
}

const Key* find_key(std::string_view full_name) {
  static const auto index = [] {
    std::unordered_map<std::string, const Key*> map;
    for (const Key& key : key_table()) {
      map.emplace(key.full_name(), &key);
    }
    return map;
  }();
  const auto found = index.find(std::string(full_name));
  return found == index.end() ? nullptr : found->second;
}

bool is_section(std::string_view name) {
  return std::any_of(key_table().begin(), key_table().end(), [name](const Key& key) {
    return key.section == name;
  });
}

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  names.reserve(key_table().size());
  for (const Key& key : key_table()) {
    names.push_back(key.full_name());
  }
  return names;
}

std::string describe_allowed(const Key& key) {
  const Allowed& allowed = key.allowed;
  if (!allowed.choices.empty()) {
    return fmt::format("{}", fmt::join(allowed.choices, " | "));
  }
  switch (key.type()) {
    case ValueType::kBool:
      return "true | false";
    case ValueType::kInteger:
      return "an integer " + describe_range(allowed, true);
    case ValueType::kNumber:
      return "a finite number " + describe_range(allowed, false);
    case ValueType::kText:
      return allowed.may_be_empty ? "text" : "text that is not empty";
    case ValueType::kIntegers:
      return fmt::format("a list of integers {}, like [784, 10]", describe_range(allowed, true));
    case ValueType::kTexts:
      return "a list of texts, like [\"a\", \"b\"]";
  }
  return {};
}

void refuse_value(const Key& key, const std::string& origin, std::string_view found) {
  const bool whole = found.size() <= kLongestShownValue;
  throw_request_error("{} = {}{}: expected {}",
                      origin,
                      found.substr(0, kLongestShownValue),
                      whole ? "" : "...",
                      describe_allowed(key));
}

void set_value(Configuration& config,
               const Key& key,
               const Value& value,
               const std::string& origin) {
  LOCKSTEP_CHECK(type_of(value) == key.type());
  if (!is_allowed(key, value)) {
    refuse_value(key, origin, to_toml(value));
  }
  key.set(config, value);
  config.origins.insert_or_assign(key.full_name(), origin);
}

}  // namespace lockstep
