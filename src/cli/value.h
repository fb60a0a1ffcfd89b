// Values of configuration keys: the types there are, and how they are spelled.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// What a key can hold. The order is that of ValueType.
using Value =
    std::variant<bool, long, double, std::string, std::vector<long>, std::vector<std::string>>;

enum class ValueType : std::size_t { kBool, kInteger, kNumber, kText, kIntegers, kTexts };

inline ValueType type_of(const Value& value) {
  return static_cast<ValueType>(value.index());
}

inline bool is_list(ValueType type) {
  return type == ValueType::kIntegers || type == ValueType::kTexts;
}

/// The value as TOML: 3, 0.001, true, "text", [1, 2]. Text must be UTF-8 without zero bytes.
std::string to_toml(const Value& value);

/// The value as in a list of choices: as TOML, but text without its quotes.
std::string to_plain(const Value& value);

/// Reads one scalar as typed on a command line; nothing when it is not of that type. Integers are
/// decimal digits with an optional sign; "10.0" and "1e3" are numbers, not integers.
std::optional<Value> scalar_from_text(ValueType type, std::string_view text);

/// Whether `text` can stand in a TOML file: valid UTF-8 without zero bytes.
bool is_plain_utf8(std::string_view text);

}  // namespace lockstep
