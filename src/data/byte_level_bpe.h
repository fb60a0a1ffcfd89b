// Byte-level byte-pair encoding, as GPT-2, Llama 3, Qwen and SmolLM2 use it.
//
// A text is cut at added tokens, then into pieces by patterns (PieceSplitter); each piece's bytes
// are merged pair by pair (merge_tokens). Ids equal those of Hugging Face's `tokenizers` on valid
// UTF-8, without the tokens a post-processor would add.
//
// Bytes that are no valid UTF-8 count as U+001A (SUBSTITUTE) while the text is cut into pieces: no
// letter, no digit, no white space, as U+FFFD would be. What is encoded are the bytes themselves,
// so that they come back from decode().
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/added_tokens.h"
#include "data/merge_table.h"
#include "data/piece_splitter.h"
#include "data/tokenizer.h"

namespace lockstep {

/// The character that spells `byte` in tokeniser files, in UTF-8: printable characters of Latin-1
/// spell themselves, the others follow from U+0100 on in order.
std::string spelling_of_byte(std::uint8_t byte);

/// The bytes that a token of the byte alphabet spells; a token with any other character spells
/// itself.
std::string bytes_of_token(const std::string& token);

class ByteLevelBpe final : public Tokenizer {
 public:
  /// Errors: RequestError for patterns that are not supported, see PieceSplitter.
  explicit ByteLevelBpe(TokenizerTables tables);
  ByteLevelBpe(const ByteLevelBpe&) = delete;
  ByteLevelBpe& operator=(const ByteLevelBpe&) = delete;
  ~ByteLevelBpe() override;

  [[nodiscard]] std::int32_t vocab_size() const override;
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override;
  [[nodiscard]] std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  [[nodiscard]] std::size_t last_safe_cut(std::string_view text) const override;

 protected:
  void encode_text(std::string_view text,
                   SpecialTokens special,
                   std::vector<std::int32_t>& out) const override;

 private:
  struct Scratch;
  class Lease;

  void encode_plain(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& out) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& out) const;

  std::string source_;
  std::vector<std::string> bytes_;  // by id
  std::array<std::int32_t, 256> id_of_byte_{};
  MergeTable merges_;
  PieceSplitter splitter_;
  AddedTokenFinder first_added_;                                     // looked for first
  AddedTokenFinder second_added_;                                    // looked for in what is left
  std::unordered_map<std::string_view, std::int32_t> whole_pieces_;  // with ignore_merges only
  std::optional<std::int32_t> end_of_text_;
  bool may_cut_ = true;

  // Caches and matchers, one for each thread that is encoding at the same time.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace lockstep
