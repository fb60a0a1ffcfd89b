#include "cli/value.h"

#include <charconv>
#include <cstdint>
#include <system_error>

#include <spdlog/fmt/fmt.h>

namespace lockstep {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(byte));
    } else {
      out += c;
    }
  }
  return out + '"';
}

template <typename T>
std::optional<Value> number_from_text(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

struct TomlSpelling {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(long value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const {
    const std::string digits = fmt::format("{}", value);
    const bool is_integer = digits.find_first_not_of("-0123456789") == std::string::npos;
    return is_integer ? digits + ".0" : digits;  // TOML tells integers from other numbers
  }
  std::string operator()(const std::string& value) const { return quoted(value); }
  template <typename T>
  std::string operator()(const std::vector<T>& values) const {
    std::string out = "[";
    for (const T& value : values) {
      out += out.size() == 1 ? "" : ", ";
      out += (*this)(value);
    }
    return out + "]";
  }
};

// Bytes of the UTF-8 sequence that `lead` starts; 0 when it starts none.
std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xc2 && lead <= 0xdf) {
    return 2;
  }
  if (lead >= 0xe0 && lead <= 0xef) {
    return 3;
  }
  return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

}  // namespace

std::string to_toml(const Value& value) {
  return std::visit(TomlSpelling{}, value);
}

std::string to_plain(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : to_toml(value);
}

std::optional<Value> scalar_from_text(ValueType type, std::string_view text) {
  switch (type) {
    case ValueType::kBool:
      if (text == "true" || text == "false") {
        return text == "true";
      }
      return std::nullopt;
    case ValueType::kInteger:
    case ValueType::kIntegers:
      return number_from_text<long>(text);
    case ValueType::kNumber:
      return number_from_text<double>(text);
    case ValueType::kText:
    case ValueType::kTexts:
      return is_plain_utf8(text) ? std::optional<Value>(std::string(text)) : std::nullopt;
  }
  return std::nullopt;
}

bool is_plain_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = sequence_length(lead);
    if (lead == 0 || length == 0 || at + length > text.size()) {
      return false;
    }
    std::uint32_t code = length == 1 ? lead : lead & (0x7fU >> length);
    for (std::size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(text[at + i]);
      if ((byte & 0xc0U) != 0x80U) {
        return false;
      }
      code = (code << 6U) | (byte & 0x3fU);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (overlong || surrogate || code > 0x10ffff) {
      return false;
    }
    at += length;
  }
  return true;
}

}  // namespace lockstep
