#include "formats/json_lines.h"

#include <array>
#include <cmath>
#include <fstream>

#include "base/error.h"

namespace lockstep {

JsonLinesWriter::JsonLinesWriter(const std::string& path, std::size_t max_line_bytes)
    : file_(path), max_line_bytes_(max_line_bytes) {
  line_.reserve(max_line_bytes);
  if (file_.size() > 0) {
    const std::size_t valid_bytes = read_json_lines(path).valid_bytes;
    if (valid_bytes < file_.size()) {
      file_.truncate(valid_bytes);
    }
  }
}

JsonLinesWriter& JsonLinesWriter::begin() {
  line_.clear();
  put("{");
  return *this;
}

JsonLinesWriter& JsonLinesWriter::text(std::string_view key, std::string_view value) {
  put_key(key);
  put("\"");
  for (const char character : value) {
    const auto code = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      const std::array<char, 2> escaped{'\\', character};
      put({escaped.data(), escaped.size()});
    } else if (code < 0x20U) {
      std::array<char, 6> escaped{};
      fmt::format_to_n(escaped.data(), escaped.size(), "\\u{:04x}", code);
      put({escaped.data(), escaped.size()});
    } else {
      put({&character, 1});
    }
  }
  put("\"");
  return *this;
}

JsonLinesWriter& JsonLinesWriter::integer(std::string_view key, long value) {
  put_key(key);
  const fmt::format_int digits(value);
  put({digits.data(), digits.size()});
  return *this;
}

JsonLinesWriter& JsonLinesWriter::exact(std::string_view key, double value) {
  put_key(key);
  if (!std::isfinite(value)) {
    put("null");
    return *this;
  }
  std::array<char, 32> digits{};  // sign, 17 digits, point, exponent of five
  const auto written = fmt::format_to_n(digits.data(), digits.size(), "{:.17g}", value);
  put({digits.data(), written.size});
  return *this;
}

JsonLinesWriter& JsonLinesWriter::number(std::string_view key, double value) {
  put_key(key);
  if (!std::isfinite(value)) {
    put("null");
    return *this;
  }
  std::array<char, 32> digits{};
  const auto written = fmt::format_to_n(digits.data(), digits.size(), "{}", value);
  put({digits.data(), written.size});
  return *this;
}

JsonLinesWriter& JsonLinesWriter::open(std::string_view key) {
  put_key(key);
  put("{");
  return *this;
}

JsonLinesWriter& JsonLinesWriter::close() {
  put("}");
  return *this;
}

void JsonLinesWriter::end() {
  put("}\n");
  file_.append(line_);
  line_.clear();
}

void JsonLinesWriter::put(std::string_view bytes) {
  LOCKSTEP_CHECK(line_.size() + bytes.size() <= max_line_bytes_);
  line_.append(bytes);
}

void JsonLinesWriter::put_key(std::string_view key) {
  put(line_.back() != '{' ? ",\"" : "\"");
  put(key);
  put("\":");
}

JsonLines read_json_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw_error("cannot read {}", path);
  }
  JsonLines result;
  std::string line;
  while (std::getline(file, line)) {
    if (file.eof()) {  // the end came before a newline
      break;
    }
    result.valid_bytes += line.size() + 1;
    result.lines.push_back(line);
  }
  if (file.bad()) {
    throw_error("cannot read {}: the read failed", path);
  }
  return result;
}

}  // namespace lockstep
