#include "data/tokenize_files.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <random>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "data/text_chunks.h"
#include "support/catch.h"

namespace lockstep {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string kTokenizer = std::string(LOCKSTEP_ORACLE_DATA) + "/tokenizer";

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("tokenize-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string path(const std::string& name) const { return path_ / name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

// Prose, symbols, added tokens, white space of all kinds and bytes that are no UTF-8.
std::string random_text(std::mt19937& random, int num_parts) {
  const std::array<std::string, 22> parts = {
      "the ", "harbour", " ", "  ",     "\n",     "\r\n", "\t",   "it's", "don't", "12",
      "7",    "!",       "…", "\u00a0", "\u3000", "é",    "\xff", "\xe2", "\x82",  "<|endoftext|>",
      "<|",   "中"};
  std::string text;
  for (int i = 0; i < num_parts; ++i) {
    text += parts[random() % parts.size()];
  }
  return text;
}

struct Collected {
  Ids train;
  Ids validation;
  TokenizeCounts counts;
};

Collected collect(const Tokenizer& tokenizer, const TokenizeRequest& request) {
  Collected result;
  const auto append_to = [](Ids& all) {
    return [&all](std::span<const std::int32_t> ids) {
      all.insert(all.end(), ids.begin(), ids.end());
    };
  };
  result.counts =
      tokenize_files(tokenizer, request, append_to(result.train), append_to(result.validation));
  return result;
}

TokenizeRequest request_for(const Folder& folder) {
  TokenizeRequest request;
  request.input = folder.path("*.txt");
  request.output = folder.path("out.bin");
  request.threads = 3;
  return request;
}

TEST_CASE("ids do not depend on chunk size and threads") {
  const auto spec = GENERATE(std::string("bytes"), kTokenizer);
  const auto tokenizer = make_tokenizer(spec);
  const Folder folder;
  std::mt19937 random(4);  // NOLINT(cert-msc51-cpp): the same texts each time
  for (int round = 0; round < 15; ++round) {
    const std::string first = random_text(random, 200);
    const std::string second = random_text(random, 90);
    folder.write("a.txt", first);
    folder.write("b.txt", second);
    Ids expected;
    tokenizer->encode(first, expected);
    tokenizer->encode(second, expected);
    for (const std::size_t chunk_bytes : {1, 3, 7, 50, 1000}) {
      TokenizeRequest request = request_for(folder);
      request.chunk_bytes = chunk_bytes;
      request.threads = 1 + round % 4;

      const Collected found = collect(*tokenizer, request);

      INFO("round " << round << ", chunks of " << chunk_bytes);
      REQUIRE(found.train == expected);
      REQUIRE(found.counts.files == 2);
      REQUIRE(found.counts.tokens == static_cast<std::int64_t>(expected.size()));
      REQUIRE(found.counts.bytes == static_cast<std::int64_t>(first.size() + second.size()));
    }
  }
}

TEST_CASE("a chunk of prose stays near the size asked for") {
  const auto tokenizer = make_tokenizer(kTokenizer);
  const Folder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += "a few words\n";
  }
  folder.write("a.txt", text);
  TextChunks chunks(folder.path("a.txt"), *tokenizer, 1000);

  std::string joined;
  while (const auto chunk = chunks.next()) {
    REQUIRE(chunk->size() <= 1000);
    joined += *chunk;
  }

  REQUIRE(joined == text);
}

TEST_CASE("an added token with a blank inside is never cut") {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(kTokenizer + "/tokenizer.json"));
  json["added_tokens"].push_back(
      {{"id", json["added_tokens"].back()["id"].get<int>() + 1}, {"content", "a b"}});
  const Folder folder;
  folder.write("tokenizer.json", json.dump());
  folder.write("a.txt", "xa bx a b");
  const auto tokenizer = make_tokenizer(folder.path("tokenizer.json"));
  TokenizeRequest request = request_for(folder);
  request.chunk_bytes = 1;
  Ids expected;
  tokenizer->encode("xa bx a b", expected);

  REQUIRE(std::count(expected.begin(), expected.end(), tokenizer->vocab_size() - 1) == 2);
  REQUIRE(collect(*tokenizer, request).train == expected);
}

TEST_CASE("the last fraction of the tokens goes to the second output") {
  const Folder folder;
  folder.write("a.txt", "0123456789");
  folder.write("b.txt", "abcdefghi");
  const auto tokenizer = make_tokenizer("bytes");
  TokenizeRequest request = request_for(folder);
  request.validation_fraction = 0.25;  // of 19 tokens: 4

  const Collected found = collect(*tokenizer, request);

  REQUIRE(tokenizer->decode(found.train) == "0123456789abcde");
  REQUIRE(tokenizer->decode(found.validation) == "fghi");
  REQUIRE(found.counts.tokens == 19);
  REQUIRE(found.counts.validation_tokens == 4);
  const std::filesystem::directory_iterator folder_entries(folder.path(""));
  REQUIRE(std::distance(begin(folder_entries), end(folder_entries)) == 2);
}

TEST_CASE("files are taken in the order of their names") {
  const Folder folder;
  folder.write("10.txt", "B");
  folder.write("9.txt", "C");
  folder.write("1.txt", "A");
  folder.write("empty.txt", "");
  const auto tokenizer = make_tokenizer("bytes");

  REQUIRE(collect(*tokenizer, request_for(folder)).train == Ids{'A', 'B', 'C'});
}

TEST_CASE("the second output is named after the first") {
  REQUIRE(validation_path("data/books.bin") == "data/books.validation.bin");
  REQUIRE(validation_path("a.b/books") == "a.b/books.validation");
}

TEST_CASE("requests that cannot be met are refused before anything is sent") {
  const Folder folder;
  folder.write("a.txt", "text");
  const auto tokenizer = make_tokenizer("bytes");
  TokenizeRequest request = request_for(folder);
  std::string named;
  SECTION("no file matches") {
    request.input = folder.path("*.none");
    named = "no file matches";
  }
  SECTION("a folder matches") {
    std::filesystem::create_directories(folder.path("b.txt"));
    named = "b.txt: matches";
  }
  SECTION("ids that do not fit") {
    request.max_ids = 255;
    named = "vocabulary has 256";
  }
  SECTION("a fraction of one") {
    request.validation_fraction = 1;
    named = "tokenize.validation";
  }
  SECTION("a negative fraction") {
    request.validation_fraction = -0.1;
    named = "tokenize.validation";
  }
  SECTION("a fraction that is no number") {
    request.validation_fraction = std::numeric_limits<double>::quiet_NaN();
    named = "tokenize.validation";
  }
  SECTION("a fraction below one token") {
    request.validation_fraction = 0.1;
    named = "leaves one output empty";
  }
  SECTION("an output in a folder that does not exist") {
    request.output = folder.path("absent/out.bin");
    named = "does not exist";
  }
  SECTION("an output that is a folder") {
    request.output = folder.path("");
    named = "a folder";
  }
  SECTION("an output among the inputs") {
    request.output = folder.path("a.txt");
    named = "one of the inputs";
  }
  SECTION("empty files only") {
    folder.write("a.txt", "");
    named = "are empty";
  }
  const TokenSink unused = [](std::span<const std::int32_t>) { FAIL("ids were sent"); };

  REQUIRE_THROWS_MATCHES(tokenize_files(*tokenizer, request, unused, unused),
                         RequestError,
                         Catch::Predicate<RequestError>([&](const RequestError& error) {
                           INFO(error.what());
                           return std::string(error.what()).find(named) != std::string::npos;
                         }));
}

TEST_CASE("an error while encoding reaches the caller") {
  const Folder folder;
  folder.write("tokenizer.json",
               R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
                   "decoder": {"type": "ByteLevel"},
                   "model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1}, "merges": []}})");
  folder.write("a.txt", "a a a a a a b a a a a a a");
  const auto tokenizer = make_tokenizer(folder.path("tokenizer.json"));
  TokenizeRequest request = request_for(folder);
  request.chunk_bytes = 2;

  REQUIRE_THROWS_WITH(collect(*tokenizer, request), Catch::Contains("0x62"));
}

}  // namespace
}  // namespace lockstep
