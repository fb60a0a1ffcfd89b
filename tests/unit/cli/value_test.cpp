#include "cli/value.h"

#include <limits>

#include "support/catch.h"

using lockstep::is_plain_utf8;
using lockstep::scalar_from_text;
using lockstep::to_toml;
using lockstep::Value;
using lockstep::ValueType;

TEST_CASE("values are spelled as TOML") {
  CHECK(to_toml(Value(true)) == "true");
  CHECK(to_toml(Value(-3L)) == "-3");
  CHECK(to_toml(Value(1.0)) == "1.0");
  CHECK(to_toml(Value(0.1)) == "0.1");
  CHECK(to_toml(Value(std::string("a\"b\\c\n\t\x01\x7f"))) == R"("a\"b\\c\n\t\u0001\u007F")");
  CHECK(to_toml(Value(std::vector<long>{784, 10})) == "[784, 10]");
  CHECK(to_toml(Value(std::vector<std::string>{})) == "[]");
  CHECK(to_toml(Value(std::vector<std::string>{"", ","})) == R"(["", ","])");
}

TEST_CASE("spelled numbers read back as the same bits") {
  const double numbers[] = {0.1,
                            1.0 / 3.0,
                            1e-5,
                            1e17,
                            123456789.123456789,
                            std::numeric_limits<double>::min(),
                            std::numeric_limits<double>::denorm_min(),
                            std::numeric_limits<double>::max()};
  for (const double number : numbers) {
    const auto back = scalar_from_text(ValueType::kNumber, to_toml(Value(number)));

    REQUIRE(back.has_value());
    CHECK(std::get<double>(*back) == number);
  }
}

TEST_CASE("words that are not of the type are no values") {
  for (const char* word : {"", "10.0", "1e3", "0x10", "1_000", " 5", "5 ", "9223372036854775808"}) {
    INFO(word);
    CHECK_FALSE(scalar_from_text(ValueType::kInteger, word).has_value());
  }
  for (const char* word : {"", "1,5", "0.1x", "1e999", "--1"}) {
    INFO(word);
    CHECK_FALSE(scalar_from_text(ValueType::kNumber, word).has_value());
  }
  for (const char* word : {"", "True", "yes", "1", "on"}) {
    INFO(word);
    CHECK_FALSE(scalar_from_text(ValueType::kBool, word).has_value());
  }
}

TEST_CASE("only well-formed UTF-8 without zero bytes is text") {
  for (const char* text : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    CHECK(is_plain_utf8(text));
  }
  const std::string bad[] = {"\x80",
                             "\xc3",
                             "\xc0\xaf",
                             "\xe0\x80\xaf",
                             "\xed\xa0\x80",
                             "\xf4\x90\x80\x80",
                             "\xff",
                             "\xf0\x80\x80\x80",
                             std::string("a\0b", 3)};
  for (const std::string& text : bad) {
    CHECK_FALSE(is_plain_utf8(text));
  }
}
