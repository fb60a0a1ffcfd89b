#include "data/byte_level_bpe.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/catch.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::string kFolder = std::string(LOCKSTEP_ORACLE_DATA) + "/tokenizer";

Json read_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

Ids encode(const Tokenizer& tokenizer,
           std::string_view text,
           SpecialTokens special = SpecialTokens::kRecognise) {
  Ids ids;
  tokenizer.encode(text, ids, special);
  return ids;
}

// The committed tokeniser with other splitting steps.
std::unique_ptr<Tokenizer> make_variant(const Json& variant) {
  Json tokenizer = read_json(kFolder + "/tokenizer.json");
  tokenizer["pre_tokenizer"] = variant["pre_tokenizer"];
  tokenizer["model"]["ignore_merges"] = variant["ignore_merges"];
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("bpe-variant-{}.json", std::random_device()());
  std::ofstream(path) << tokenizer.dump();
  auto made = make_tokenizer(path.string());
  std::filesystem::remove(path);
  return made;
}

// The bytes and the merges given, no splitting but GPT-2's.
TokenizerTables tables_with(const std::vector<std::pair<std::string, std::string>>& merges) {
  TokenizerTables tables;
  tables.source = "test";
  SplitStep step;
  step.pattern = kGpt2Pattern;
  tables.steps.push_back(step);
  for (unsigned byte = 0; byte < 256; ++byte) {
    tables.tokens.push_back(spelling_of_byte(static_cast<std::uint8_t>(byte)));
  }
  const auto id_of = [&](const std::string& token) {
    const auto found = std::find(tables.tokens.begin(), tables.tokens.end(), token);
    return static_cast<std::int32_t>(found - tables.tokens.begin());
  };
  for (const auto& [left, right] : merges) {
    const auto merged = static_cast<std::int32_t>(tables.tokens.size());
    tables.merges.push_back({id_of(left), id_of(right), merged});
    tables.tokens.push_back(left + right);
  }
  return tables;
}

TEST_CASE("ids of hard texts equal those of Hugging Face's tokenizers") {
  const Json cases = read_json(kFolder + "/cases.json");
  REQUIRE(cases["variants"].size() == 7);
  for (const Json& variant : cases["variants"]) {
    const auto tokenizer = make_variant(variant);
    for (std::size_t i = 0; i < cases["texts"].size(); ++i) {
      const auto text = cases["texts"][i].get<std::string>();
      INFO(variant["name"] << ", text " << i << ": " << text);

      const Ids ids = encode(*tokenizer, text);

      REQUIRE(ids == variant["ids"][i].get<Ids>());
      REQUIRE(tokenizer->decode(ids) == text);
    }
  }
}

TEST_CASE("every byte string comes back from its ids") {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same strings each time
  const auto spec = GENERATE(std::string("bytes"), kFolder);
  const auto tokenizer = make_tokenizer(spec);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random() % 40, '\0');
    const unsigned kind = random() % 3;
    for (char& byte : text) {
      // Any byte, bytes of multi-byte characters only, or white space and letters among them.
      const unsigned value = random() % 256;
      byte = static_cast<char>(kind == 0 ? value : kind == 1 ? value | 0x80U : value & 0xe1U);
    }

    const Ids ids = encode(*tokenizer, text);

    REQUIRE(tokenizer->decode(ids) == text);
  }
}

TEST_CASE("every single byte and pair of bytes comes back from its ids") {
  const auto tokenizer = make_tokenizer(kFolder);
  for (unsigned pair = 0; pair < 0x10000; ++pair) {
    const std::string text = {static_cast<char>(pair >> 8U), static_cast<char>(pair & 0xffU)};

    REQUIRE(tokenizer->decode(encode(*tokenizer, text)) == text);
    REQUIRE(tokenizer->decode(encode(*tokenizer, text.substr(1))) == text.substr(1));
  }
}

TEST_CASE("a byte that is no UTF-8 splits like a symbol") {
  // Were it a letter, "a" and the byte would be one piece and merge.
  const ByteLevelBpe tokenizer(
      tables_with({{"a", spelling_of_byte(0xff)}, {spelling_of_byte(0xff), "!"}}));

  REQUIRE(encode(tokenizer, "a\xff") == Ids{'a', 0xff});
  REQUIRE(encode(tokenizer, "\xff!") == Ids{257});
}

TEST_CASE("the bytes tokeniser gives each byte its value") {
  const auto tokenizer = make_tokenizer("bytes");

  REQUIRE(tokenizer->vocab_size() == 256);
  REQUIRE_FALSE(tokenizer->end_of_text().has_value());
  REQUIRE(encode(*tokenizer, "A\xff\n") == Ids{65, 255, 10});
  REQUIRE_THROWS_AS(tokenizer->decode(Ids{256}), RequestError);
}

TEST_CASE("special tokens are one id, or ordinary text on request") {
  const auto tokenizer = make_tokenizer(kFolder);
  const std::string text = "a<|endoftext|><|user|>";

  const Ids recognised = encode(*tokenizer, text);
  const Ids as_text = encode(*tokenizer, text, SpecialTokens::kAsText);

  const std::int32_t end = tokenizer->end_of_text().value();
  REQUIRE(std::count(recognised.begin(), recognised.end(), end) == 1);
  REQUIRE(std::count(as_text.begin(), as_text.end(), end) == 0);
  REQUIRE(as_text.back() == recognised.back());
  REQUIRE(tokenizer->decode(as_text) == text);
}

TEST_CASE("of added tokens at one place the longest counts") {
  TokenizerTables tables = tables_with({});
  for (const std::string content : {"<a>", "<a>b", "é"}) {
    tables.added.push_back({static_cast<std::int32_t>(tables.tokens.size()), content, true, false});
    tables.tokens.push_back(content);
  }
  const ByteLevelBpe tokenizer(std::move(tables));

  REQUIRE(encode(tokenizer, "<a>b<a>c") == Ids{257, 256, 'c'});
  REQUIRE(tokenizer.decode(Ids{258}) == "é");
}

TEST_CASE("the merge of lowest rank goes first and of equal ones the leftmost") {
  const ByteLevelBpe tokenizer(tables_with({{"b", "c"}, {"a", "b"}, {"a", "a"}}));

  REQUIRE(encode(tokenizer, "abc") == Ids{'a', 256});
  REQUIRE(encode(tokenizer, "aaa") == Ids{258, 'a'});
  REQUIRE(encode(tokenizer, "aab") == Ids{'a', 257});
}

TEST_CASE("long pieces merge as short ones do") {
  // The letters repeat without end, so that a long piece holds every short one's merges.
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "b"}, {"b", "a"}, {"ab", "ab"}, {"a", "a"}, {"aa", "ab"}, {"abab", "abab"}};
  const MergeTable table(tables_with(merges).merges);
  std::mt19937 random(2);  // NOLINT(cert-msc51-cpp)
  for (int round = 0; round < 500; ++round) {
    Ids tokens(49 + random() % 60);
    for (auto& token : tokens) {
      token = random() % 2 == 0 ? std::int32_t{'a'} : std::int32_t{'b'};
    }
    // The definition: search the lowest rank from the left, merge, again.
    Ids expected = tokens;
    for (;;) {
      MergeTable::Merge best;
      std::size_t place = 0;
      for (std::size_t i = 0; i + 1 < expected.size(); ++i) {
        const auto merge = table.find(expected[i], expected[i + 1]);
        if (merge.rank < best.rank) {
          best = merge;
          place = i;
        }
      }
      if (best.rank == MergeTable::kNoRank) {
        break;
      }
      expected[place] = best.merged;
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }

    merge_tokens(table, tokens);

    REQUIRE(tokens == expected);
  }
}

TEST_CASE("a megabyte of one letter or of spaces takes no quadratic time") {
  const auto text = GENERATE(std::string(1 << 20, 'a'), std::string(1 << 20, ' ') + "x");
  const ByteLevelBpe tokenizer(tables_with({{"a", "a"}, {"aa", "aa"}, {"Ġ", "Ġ"}}));
  const std::clock_t start = std::clock();

  const Ids ids = encode(tokenizer, text);

  // Seconds of processor time, so that a busy machine does not matter. Quadratic would be 10^12
  // steps, a quarter of an hour at least; the limit leaves room for sanitisers.
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  REQUIRE(seconds < 20);
  REQUIRE(tokenizer.decode(ids) == text);
  REQUIRE(ids.size() <= text.size() / 2 + 2);
}

TEST_CASE("threads that share a tokeniser get the ids of one thread") {
  const auto tokenizer = make_tokenizer(kFolder);
  const Json cases = read_json(kFolder + "/cases.json");
  std::string text;
  for (const Json& part : cases["texts"]) {
    text += part.get<std::string>();
  }
  const Ids expected = encode(*tokenizer, text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        ids = encode(*tokenizer, text);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }

  for (const Ids& ids : found) {
    REQUIRE(ids == expected);
  }
}

TEST_CASE("ids outside the vocabulary are refused with their position") {
  const auto tokenizer = make_tokenizer(kFolder);

  REQUIRE_THROWS_WITH(tokenizer->decode(Ids{1, tokenizer->vocab_size()}),
                      Catch::Contains("position 1"));
  REQUIRE_THROWS_AS(tokenizer->decode(Ids{-1}), RequestError);
}

TEST_CASE("a byte that the vocabulary lacks is refused, not dropped") {
  TokenizerTables tables = tables_with({});
  tables.tokens.pop_back();
  const ByteLevelBpe tokenizer(std::move(tables));

  REQUIRE_THROWS_WITH(encode(tokenizer, "a\xff"), Catch::Contains("0xff"));
}

}  // namespace
}  // namespace lockstep
