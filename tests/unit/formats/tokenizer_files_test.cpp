#include "formats/tokenizer_files.h"

#include <filesystem>
#include <fstream>
#include <functional>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "support/catch.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / fmt::format("tokfiles-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string path(const std::string& name = "") const { return path_ / name; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

// A tokeniser of three bytes and one merge.
Json small_tokenizer() {
  return Json::parse(R"({"added_tokens": [{"id": 4, "content": "<|endoftext|>", "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]}})");
}

std::string message_of(const std::string& path) {
  try {
    read_tokenizer_files(path);
  } catch (const RequestError& error) {
    return error.what();
  }
  return "accepted";
}

std::string message_of_json(const Folder& folder, const Json& tokenizer) {
  folder.write("tokenizer.json", tokenizer.dump());
  return message_of(folder.path());
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a tokenizer.json becomes tables") {
  const Folder folder;
  folder.write("tokenizer.json", small_tokenizer().dump());

  const TokenizerTables tables = read_tokenizer_files(folder.path());

  REQUIRE(tables.tokens == std::vector<std::string>{"a", "b", "c", "ab", "<|endoftext|>"});
  REQUIRE(tables.merges.size() == 1);
  REQUIRE(tables.merges[0].left == 0);
  REQUIRE(tables.merges[0].right == 1);
  REQUIRE(tables.merges[0].merged == 3);
  REQUIRE(tables.steps.size() == 1);
  REQUIRE(tables.steps[0].pattern == kGpt2Pattern);
  REQUIRE(tables.added.size() == 1);
  REQUIRE(tables.added[0].special);
  REQUIRE(tables.end_of_text == 4);
}

TEST_CASE("both pairs of GPT-2 files are found by folder and by either file") {
  const auto [vocabulary, merges] = GENERATE(std::make_pair("encoder.json", "vocab.bpe"),
                                             std::make_pair("vocab.json", "merges.txt"));
  const Folder folder;
  folder.write(vocabulary, R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  folder.write(merges, "#version: 0.2\na b\n");

  for (const std::string& path : {folder.path(), folder.path(vocabulary), folder.path(merges)}) {
    const TokenizerTables tables = read_tokenizer_files(path);

    REQUIRE(tables.tokens.size() == 4);
    REQUIRE(tables.merges.size() == 1);
    REQUIRE(tables.end_of_text == 3);
  }
}

TEST_CASE("the end of text is the one that the configuration names") {
  const Folder folder;
  Json tokenizer = small_tokenizer();
  tokenizer["added_tokens"].push_back({{"id", 5}, {"content", "<|im_end|>"}});
  folder.write("tokenizer.json", tokenizer.dump());
  folder.write("tokenizer_config.json", R"({"eos_token": {"content": "<|im_end|>"}})");

  REQUIRE(read_tokenizer_files(folder.path()).end_of_text == 5);
}

TEST_CASE("merges as pairs and as texts read alike") {
  const Folder folder;
  Json tokenizer = small_tokenizer();
  tokenizer["model"]["merges"] = Json::parse(R"([["a", "b"]])");
  folder.write("tokenizer.json", tokenizer.dump());

  REQUIRE(read_tokenizer_files(folder.path()).merges[0].merged == 3);
}

TEST_CASE("a tokenizer.json of another kind is refused naming what it is") {
  struct Case {
    const char* pointer;
    const char* value;
    const char* named;
  };
  const auto changed = GENERATE(values<Case>({
      {"/model/type", R"("WordPiece")", "WordPiece"},
      {"/model/type", R"("Unigram")", "Unigram"},
      {"/model/byte_fallback", "true", "byte_fallback"},
      {"/model/end_of_word_suffix", R"("</w>")", "</w>"},
      {"/model/continuing_subword_prefix", R"("##")", "##"},
      {"/model/dropout", "0.1", "dropout"},
      {"/normalizer", R"({"type": "NFC"})", "NFC"},
      {"/decoder", R"({"type": "Metaspace"})", "Metaspace"},
      {"/pre_tokenizer", R"({"type": "Whitespace"})", "Whitespace"},
      {"/pre_tokenizer", "null", "no pre_tokenizer"},
      {"/pre_tokenizer", "3", "number"},
      {"/pre_tokenizer", R"({"type": "ByteLevel"})", "add_prefix_space"},
      {"/pre_tokenizer", R"({"type": "Digits"})", "ByteLevel must be the last"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": []})", "Sequence"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "MergedWithNext"})",
       "MergedWithNext"},
      {"/added_tokens/0/lstrip", "true", "lstrip"},
  }));
  const Folder folder;
  Json tokenizer = small_tokenizer();
  tokenizer[Json::json_pointer(changed.pointer)] = Json::parse(changed.value);

  const std::string message = message_of_json(folder, tokenizer);

  INFO(message);
  REQUIRE(holds(message, changed.named));
  REQUIRE(holds(message, folder.path("tokenizer.json")));
}

TEST_CASE("a malformed tokenizer.json is refused naming what was found") {
  struct Case {
    const char* pointer;
    const char* value;
    const char* named;
  };
  const auto changed = GENERATE(values<Case>({
      {"/model", "null", "not a tokenizer.json"},
      {"/model/vocab", "[]", "array"},
      {"/model/vocab", "{}", "empty"},
      {"/model/vocab/c", "1", "both have the id 1"},
      {"/model/vocab/c", "7", "without a gap"},
      {"/model/vocab/c", "-1", "-1"},
      {"/model/vocab/c", "18446744073709551615", "18446744073709551615"},
      {"/model/vocab/c", "4294967298", "4294967298"},
      {"/model/vocab/c", "2.0", "2.0"},
      {"/model/vocab/c", R"("2")", "\"2\""},
      {"/model/merges", "{}", "object"},
      {"/model/merges/0", R"("a")", "merge 0"},
      {"/model/merges/0", R"("a b c")", "a b c"},
      {"/model/merges/0", "7", "7"},
      {"/model/merges/0", R"("a x")", "'x' is not in the vocabulary"},
      {"/model/merges/0", R"("b c")", "'bc' is not in the vocabulary"},
      {"/added_tokens", "{}", "added_tokens"},
      {"/added_tokens/0/id", "0", "both have the id 0"},
      {"/added_tokens/0/id", "-3", "-3"},
      {"/added_tokens/0/content", R"("")", "content ''"},
      {"/added_tokens/0/content", R"("a")", "id 4 here and id 0 before"},
      {"/added_tokens/0/special", "1", "special"},
  }));
  const Folder folder;
  Json tokenizer = small_tokenizer();
  tokenizer[Json::json_pointer(changed.pointer)] = Json::parse(changed.value);

  const std::string message = message_of_json(folder, tokenizer);

  INFO(message);
  REQUIRE(holds(message, changed.named));
  REQUIRE(holds(message, folder.path("tokenizer.json")));
}

TEST_CASE("a tokenizer.json cut anywhere is refused") {
  const Folder folder;
  const std::string whole = small_tokenizer().dump();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    folder.write("tokenizer.json", whole.substr(0, bytes));

    REQUIRE(holds(message_of(folder.path()), "not valid JSON"));
  }
}

TEST_CASE("a token that stands twice is refused") {
  const Folder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "a": 2})");
  folder.write("merges.txt", "");

  REQUIRE(holds(message_of(folder.path()), "'a' stands twice"));
}

TEST_CASE("a malformed list of merges is refused with its line") {
  const auto [text, named] = GENERATE(std::make_pair("#version: 0.2\na b\nab", "line 3"),
                                      std::make_pair("a  b\n", "line 1"),
                                      std::make_pair("a b\na z\n", "line 2"),
                                      std::make_pair("a b\n#version: 0.2\n", "line 2"));
  const Folder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder.write("merges.txt", text);

  const std::string message = message_of(folder.path());

  INFO(message);
  REQUIRE(holds(message, named));
  REQUIRE(holds(message, "merges.txt"));
}

TEST_CASE("a pair of another tokeniser class is refused") {
  const Folder folder;
  folder.write("vocab.json", R"({"a": 0})");
  folder.write("merges.txt", "");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");

  REQUIRE(holds(message_of(folder.path()), "Qwen2Tokenizer"));
}

TEST_CASE("paths that hold no tokeniser are refused with what is expected") {
  const Folder folder;
  folder.write("tokenizer.model", "\n\x0e");
  std::filesystem::create_directories(folder.path("inner/tokenizer.json"));

  REQUIRE(holds(message_of(folder.path("absent")), "no such tokeniser"));
  REQUIRE(holds(message_of(folder.path()), "expected tokenizer.json"));
  REQUIRE(holds(message_of(folder.path("tokenizer.model")), "expected tokenizer.json"));
  REQUIRE(holds(message_of(folder.path("inner")), "not a regular file"));
}

}  // namespace
}  // namespace lockstep
