// Hugging Face's tokenizer.json, and the checks it shares with GPT-2's files.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "formats/tokenizer_files.h"

namespace lockstep {

/// Largest tokeniser file that is read, in bytes, and most tokens: far above any published one.
inline constexpr std::uint64_t kMaxTokenizerBytes = std::uint64_t{256} << 20U;
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24U;

/// Ids by token, while tables are read.
using TokenIds = std::unordered_map<std::string, std::int32_t>;

/// The object {"token": id, ...}. Refuses other types, empty tokens and ids out of range.
TokenIds read_vocabulary(const nlohmann::json& object, const std::string& name);

/// Appends the merge of `left` and `right`; `where` is the file and the position for messages.
/// Refuses tokens, or a result, that the vocabulary lacks.
void append_merge(const std::string& left,
                  const std::string& right,
                  const TokenIds& ids,
                  const std::string& where,
                  TokenizerTables& tables);

/// Fills `tables.tokens` from the ids. Refuses doubled ids and ids that are not 0 .. n-1.
void fill_tokens(const TokenIds& ids, TokenizerTables& tables);

/// Reads the file `path`. See read_tokenizer_files.
TokenizerTables read_tokenizer_json(const std::string& path);

}  // namespace lockstep
