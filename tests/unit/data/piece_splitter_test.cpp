#include "data/piece_splitter.h"

#include <array>
#include <random>

#include "base/error.h"
#include "data/utf8.h"
#include "support/catch.h"

namespace lockstep {
namespace {

const char* const kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<SplitStep> steps_of(const std::vector<std::string>& patterns) {
  std::vector<SplitStep> steps;
  for (const std::string& pattern : patterns) {
    SplitStep step;
    step.pattern = pattern;
    steps.push_back(step);
  }
  return steps;
}

std::vector<std::string> pieces_of(const PieceSplitter& splitter, std::string_view text) {
  std::vector<std::size_t> ends;
  splitter.split(text, *splitter.make_scratch(), ends);
  std::vector<std::string> pieces;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST_CASE("GPT-2's pattern leaves the last blank to the next word") {
  const PieceSplitter splitter(steps_of({kGpt2Pattern}), "test");

  REQUIRE(pieces_of(splitter, "it's  12 abc!\n\nx ") ==
          Pieces{"it", "'s", " ", " 12", " abc", "!", "\n", "\n", "x", " "});
}

TEST_CASE("Llama 3's pattern takes three digits and newlines after punctuation") {
  const PieceSplitter splitter(steps_of({kLlama3}), "test");

  REQUIRE(pieces_of(splitter, "IT'S 1234 (abc)!\n\nx \n y") ==
          Pieces{"IT", "'S", " ", "123", "4", " (", "abc", ")!\n\n", "x", " \n", " y"});
}

TEST_CASE("a step splits the pieces of the step before it") {
  const PieceSplitter splitter(steps_of({R"(\p{N})", kGpt2Pattern}), "test");

  REQUIRE(pieces_of(splitter, "a 12  3") == Pieces{"a", " ", "1", "2", "  ", "3"});
}

TEST_CASE("white space is Unicode's White_Space") {
  const PieceSplitter splitter(steps_of({R"(\s)"}), "test");

  REQUIRE(pieces_of(splitter, "a\u0085b\u00a0c\u180ed") ==
          Pieces{"a", "\u0085", "b", "\u00a0", "c\u180ed"});
}

TEST_CASE("a step that must cover the text refuses what it does not match") {
  std::vector<SplitStep> steps = steps_of({"[a-z]+"});
  steps[0].must_cover = true;
  const PieceSplitter splitter(steps, "test");

  REQUIRE(pieces_of(splitter, "abc") == Pieces{"abc"});
  REQUIRE_THROWS_WITH(pieces_of(splitter, "abc1"), Catch::Contains("bytes 3 to 4"));
}

TEST_CASE("patterns that PCRE2 would read differently are refused") {
  const auto pattern = GENERATE(values<std::string>({R"(\w+)",
                                                     R"(\bx)",
                                                     R"(\h)",
                                                     R"([a[bc]])",
                                                     R"([a-z&&[^b]])",
                                                     "^a",
                                                     "a$",
                                                     R"((?<=a)b)",
                                                     R"((?<name>a))",
                                                     R"(\p{N}{1,3}+)",
                                                     "(*UTF)a",
                                                     R"(a\K)",
                                                     "\\"}));

  REQUIRE_THROWS_AS(PieceSplitter(steps_of({pattern}), "test"), RequestError);
}

TEST_CASE("patterns that are malformed or match nothing are refused") {
  const auto pattern =
      GENERATE(values<std::string>({"(a", "[a", R"(\p{Nonsense})", "a*", "", "a|"}));

  REQUIRE_THROWS_AS(PieceSplitter(steps_of({pattern}), "test"), RequestError);
}

TEST_CASE("a pattern that backtracks without end fails instead of hanging") {
  const PieceSplitter splitter(steps_of({"(?:a+)+[bc]"}), "test");

  REQUIRE_THROWS_AS(pieces_of(splitter, std::string(200, 'a')), Error);
}

TEST_CASE("cutting where it is safe changes no piece") {
  const auto patterns = GENERATE(values<std::vector<std::string>>(
      {{kGpt2Pattern}, {kLlama3}, {kQwen}, {R"(\p{N})", kGpt2Pattern}, {R"(\p{N}+)", kLlama3}}));
  const PieceSplitter splitter(steps_of(patterns), "test");
  const std::array<std::string, 20> parts = {
      " ", "  ",  "\n",     "\r", "\t",     "a",  "B'll", "'s",     "7",      "42",
      "!", "...", "\u00a0", "é",  "\u3000", "中", "。",   "\u0085", "\u2028", "👍"};
  std::mt19937 random(3);  // NOLINT(cert-msc51-cpp): the same texts each time
  int num_cuts = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (unsigned i = 0; i < 3 + random() % 10; ++i) {
      text += parts[random() % parts.size()];
    }
    // What is known when the cut is chosen is only the start of the text.
    const std::size_t known = 1 + random() % text.size();
    const std::size_t cut = splitter.last_safe_cut(std::string_view(text).substr(0, known));
    if (cut == 0) {
      continue;
    }
    ++num_cuts;
    INFO(text << " cut at " << cut);

    Pieces pieces = pieces_of(splitter, text.substr(0, cut));
    const Pieces tail = pieces_of(splitter, text.substr(cut));
    pieces.insert(pieces.end(), tail.begin(), tail.end());

    REQUIRE(pieces == pieces_of(splitter, text));
  }
  REQUIRE(num_cuts > 1000);
}

TEST_CASE("patterns that were not analysed are never cut") {
  const PieceSplitter splitter(steps_of({R"(a b|\s+|\S+)"}), "test");

  REQUIRE(splitter.last_safe_cut("a b a b") == 0);
}

TEST_CASE("sequences that are no UTF-8 are recognised") {
  const auto valid = GENERATE(values<std::string>({"\x7f",
                                                   "\u0080",
                                                   "\u07ff",
                                                   "\u0800",
                                                   "\ud7ff",
                                                   "\ue000",
                                                   "\uffff",
                                                   "\U00010000",
                                                   "\U0010ffff"}));
  const auto invalid = GENERATE(values<std::string>({"\x80",
                                                     "\xc0\x80",
                                                     "\xc1\xbf",
                                                     "\xe0\x9f\xbf",
                                                     "\xed\xa0\x80",
                                                     "\xf0\x8f\xbf\xbf",
                                                     "\xf4\x90\x80\x80",
                                                     "\xf5\x80\x80\x80",
                                                     "\xff",
                                                     "\xe2\x82",
                                                     "\xf0\x9f\x98",
                                                     "\xc3"}));

  REQUIRE(utf8_length(valid, 0) == valid.size());
  REQUIRE(utf8_length(invalid, 0) == 0);
  REQUIRE(find_invalid_utf8("eight ASCII bytes" + valid + invalid, 0) == 17 + valid.size());
}

}  // namespace
}  // namespace lockstep
