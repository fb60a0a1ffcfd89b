#include "formats/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "formats/strict_json.h"
#include "formats/tokenizer_json.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

struct FilePair {
  const char* vocabulary;
  const char* merges;
};
constexpr std::array<FilePair, 2> kPairs = {
    {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}}};

// One merge a line, "left right"; the first line may be a "#version".
void read_merge_lines(const std::string& path, const TokenIds& ids, TokenizerTables& tables) {
  const std::string text = read_small_file(path, kMaxTokenizerBytes);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.empty() || (number == 1 && line.rfind("#version", 0) == 0)) {
      continue;
    }
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      throw_request_error("{}: line {} is '{}', expected two tokens and one space between them",
                          path,
                          number,
                          line);
    }
    append_merge(line.substr(0, space),
                 line.substr(space + 1),
                 ids,
                 fmt::format("{}: line {}", path, number),
                 tables);
  }
}

TokenizerTables read_pair(const fs::path& folder, const FilePair& pair) {
  const std::string path = (folder / pair.vocabulary).string();
  TokenizerTables tables;
  tables.source = path;
  const TokenIds ids =
      read_vocabulary(parse_strict_json(read_small_file(path, kMaxTokenizerBytes), path), path);
  fill_tokens(ids, tables);
  read_merge_lines((folder / pair.merges).string(), ids, tables);
  SplitStep gpt2;
  gpt2.pattern = kGpt2Pattern;
  tables.steps.push_back(gpt2);
  if (const auto end = ids.find("<|endoftext|>"); end != ids.end()) {
    tables.added.push_back({end->second, end->first, true, false});
  }
  return tables;
}

nlohmann::json read_config(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  if (!fs::exists(path)) {
    return nlohmann::json::object();
  }
  auto config =
      parse_strict_json(read_small_file(path.string(), kMaxTokenizerBytes), path.string());
  if (!config.is_object()) {
    throw_request_error("{}: a {}, expected an object", path.string(), config.type_name());
  }
  return config;
}

// The pair says nothing about its pattern; the configuration beside it tells whether it is GPT-2's.
void check_class(const nlohmann::json& config, const fs::path& folder) {
  const auto name = config.find("tokenizer_class");
  if (name != config.end() && *name != "GPT2Tokenizer" && *name != "GPT2TokenizerFast") {
    throw_request_error("{}: tokenizer_class is {}, which needs its tokenizer.json",
                        (folder / "tokenizer_config.json").string(),
                        name->dump());
  }
}

void find_end_of_text(const nlohmann::json& config, TokenizerTables& tables) {
  std::vector<std::string> names = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
  if (auto eos = config.find("eos_token"); eos != config.end()) {
    const auto& value = eos->is_object() && eos->contains("content") ? eos->at("content") : *eos;
    if (value.is_string()) {
      names.insert(names.begin(), value.get<std::string>());
    }
  }
  for (const std::string& name : names) {
    const auto found = std::find(tables.tokens.begin(), tables.tokens.end(), name);
    if (found != tables.tokens.end()) {
      tables.end_of_text = static_cast<std::int32_t>(found - tables.tokens.begin());
      return;
    }
  }
}

TokenizerTables read_from_folder(const fs::path& folder, const nlohmann::json& config) {
  if (fs::exists(folder / "tokenizer.json")) {
    return read_tokenizer_json((folder / "tokenizer.json").string());
  }
  for (const FilePair& pair : kPairs) {
    if (fs::exists(folder / pair.vocabulary) && fs::exists(folder / pair.merges)) {
      check_class(config, folder);
      return read_pair(folder, pair);
    }
  }
  throw_request_error(
      "{}: no tokeniser here: expected tokenizer.json, encoder.json with vocab.bpe, "
      "or vocab.json with merges.txt",
      folder.string());
}

}  // namespace

TokenizerTables read_tokenizer_files(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw_request_error("{}: no such tokeniser: expected a folder, a file or \"bytes\"", path);
  }
  const bool is_folder = fs::is_directory(path);
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  const nlohmann::json config = read_config(folder);
  const std::string name = fs::path(path).filename().string();
  const auto* const pair =
      std::find_if(kPairs.begin(), kPairs.end(), [&](const FilePair& candidate) {
        return !is_folder && (name == candidate.vocabulary || name == candidate.merges);
      });
  TokenizerTables tables;
  if (is_folder) {
    tables = read_from_folder(folder, config);
  } else if (pair != kPairs.end()) {
    check_class(config, folder);
    tables = read_pair(folder, *pair);
  } else if (fs::path(path).extension() == ".json") {
    tables = read_tokenizer_json(path);
  } else {
    throw_request_error(
        "{}: no tokeniser file that is known here: expected tokenizer.json, "
        "encoder.json with vocab.bpe, or vocab.json with merges.txt",
        path);
  }
  find_end_of_text(config, tables);
  return tables;
}

}  // namespace lockstep
