#include "formats/json_lines.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

std::string printed(double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

/// Doubles of random bits, so of every exponent; not finite ones included.
double random_double(std::uint64_t index) {
  const RandomStream stream(1, RandomPurpose::kTest, site_of("json lines"));
  return std::bit_cast<double>(static_cast<std::uint64_t>(stream.bits(2 * index)) << 32U |
                               stream.bits(2 * index + 1));
}

}  // namespace

TEST_CASE("objects are written key by key, one a line") {
  const test::ScratchFolder folder;
  JsonLinesWriter writer(folder / "lines");

  writer.begin().text("kind", "train").integer("step", -3).exact("x", 0.1).number("y", 0.1).end();
  writer.begin().end();

  CHECK(test::read_file(folder / "lines") ==
        "{\"kind\":\"train\",\"step\":-3,\"x\":0.10000000000000001,\"y\":0.1}\n{}\n");
}

TEST_CASE("objects can be values") {
  const test::ScratchFolder folder;
  JsonLinesWriter writer(folder / "lines");

  writer.begin().open("a").open("b").close().integer("c", 1).close().integer("d", 2).end();
  writer.begin().open("{").integer("{", 1).close().text("e", "{").integer("f", 3).end();

  CHECK(test::read_file(folder / "lines") ==
        "{\"a\":{\"b\":{},\"c\":1},\"d\":2}\n{\"{\":{\"{\":1},\"e\":\"{\",\"f\":3}\n");
}

TEST_CASE("exact numbers have the text of printf with 17 digits, and read back as the same bits") {
  const test::ScratchFolder folder;
  std::vector<double> values{0.0, -0.0, 1.0, 1e22, 1e-5, 5e-324, 123456789012345678.0};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const double value = random_double(i);
    if (std::isfinite(value)) {
      values.push_back(value);
    }
  }
  JsonLinesWriter writer(folder / "lines");
  for (const double value : values) {
    writer.begin().exact("exact", value).number("short", value).end();
  }

  const JsonLines read = read_json_lines(folder / "lines");

  REQUIRE(read.lines.size() == values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string start = "{\"exact\":" + printed(values[i]) + ",\"short\":";
    REQUIRE(read.lines[i].substr(0, start.size()) == start);
    const double short_value = std::strtod(read.lines[i].c_str() + start.size(), nullptr);
    CHECK(std::bit_cast<std::uint64_t>(short_value) == std::bit_cast<std::uint64_t>(values[i]));
    CHECK(nlohmann::json::accept(read.lines[i]));
  }
}

TEST_CASE("numbers that are not finite are null") {
  const test::ScratchFolder folder;
  JsonLinesWriter writer(folder / "lines");
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();

  writer.begin().exact("a", infinity).exact("b", nan).number("c", -infinity).number("d", nan).end();

  CHECK(test::read_file(folder / "lines") == "{\"a\":null,\"b\":null,\"c\":null,\"d\":null}\n");
}

TEST_CASE("text is escaped") {
  const test::ScratchFolder folder;
  const std::string text = "quote \" backslash \\ newline \n bell \a umlaut \xc3\xbc";
  JsonLinesWriter writer(folder / "lines");

  writer.begin().text("text", text).end();

  const JsonLines read = read_json_lines(folder / "lines");
  REQUIRE(read.lines.size() == 1);
  CHECK(nlohmann::json::parse(read.lines[0])["text"] == text);
}

TEST_CASE("a line beyond the buffer is a bug, and the file stays whole") {
  const test::ScratchFolder folder;
  JsonLinesWriter writer(folder / "lines", 16);

  CHECK_THROWS_AS(writer.begin().text("key", "far too long"), std::logic_error);

  CHECK(test::read_file(folder / "lines").empty());
}

TEST_CASE("reading drops a torn last line and gives the length of the rest") {
  const test::ScratchFolder folder;
  test::write_file(folder / "lines", "{\"a\":1}\n{}\n{\"a\":");

  const JsonLines read = read_json_lines(folder / "lines");

  CHECK((read.lines == std::vector<std::string>{"{\"a\":1}", "{}"}));
  CHECK(read.valid_bytes == 11);
}

TEST_CASE("writing goes on behind the last complete line") {
  const test::ScratchFolder folder;
  test::write_file(folder / "lines", "{\"a\":1}\n{\"a\":");

  JsonLinesWriter(folder / "lines").begin().integer("a", 2).end();

  CHECK(test::read_file(folder / "lines") == "{\"a\":1}\n{\"a\":2}\n");
}

TEST_CASE("a file of lines that is missing is named") {
  const test::ScratchFolder folder;
  CHECK_THROWS_WITH(read_json_lines(folder / "missing"), Catch::Contains("missing"));
}

}  // namespace lockstep
