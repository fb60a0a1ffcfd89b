// Tokeniser files as tables: GPT-2's pair of files and Hugging Face's tokenizer.json.
//
// Nothing here encodes a text. The tables are those of a byte-level BPE: every token is spelt in
// the byte alphabet (one printable character a byte), merges are in order of priority, and
// splitting steps say how a text is cut into the pieces inside which merges act.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The pattern GPT-2 cuts texts with, and every byte-level tokeniser that names no other.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// One step of pre-tokenisation. Each match of the pattern becomes a piece of its own, and so does
/// what lies between matches; the next step cuts those pieces further.
struct SplitStep {
  std::string pattern;      // a regular expression in Oniguruma's syntax
  bool literal = false;     // the pattern is plain text
  bool must_cover = false;  // what lies between matches is refused (the reference would drop it)
};

/// Two neighbouring tokens that become one. Earlier merges go first.
struct TokenMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t merged = 0;
};

/// A text that stands for one id wherever it occurs, before any splitting.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;      // as it stands in texts, in UTF-8
  bool special = false;     // a control token, not part of the language
  bool normalized = false;  // looked for after those that are not
};

/// What a tokeniser's files say, checked: ids are dense and unique, merges name known tokens.
struct TokenizerTables {
  std::string source;               // the file, for messages
  std::vector<std::string> tokens;  // by id, in the byte alphabet; of added tokens the content
  std::vector<TokenMerge> merges;   // by priority; where a pair stands twice the later one counts
  std::vector<SplitStep> steps;
  std::vector<AddedToken> added;
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  std::optional<std::int32_t> end_of_text;
};

/// Reads the tokeniser at `path`: a folder or one of the files
///   tokenizer.json             (a folder that has it is read from it alone), or
///   encoder.json + vocab.bpe   or   vocab.json + merges.txt   (naming one finds the other).
/// `end_of_text` is the `eos_token` of a tokenizer_config.json in the folder, else the first of
/// <|endoftext|>, <|end_of_text|>, </s> that exists.
/// Errors: RequestError naming the file and what was found, for everything malformed and for every
/// tokeniser that is no byte-level BPE.
TokenizerTables read_tokenizer_files(const std::string& path);

}  // namespace lockstep
