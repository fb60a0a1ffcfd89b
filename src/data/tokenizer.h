// Texts to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What becomes of control tokens such as <|endoftext|> that stand in a text.
enum class SpecialTokens : std::uint8_t {
  kRecognise,  // one id, as Hugging Face's tokenisers do
  kAsText,     // ordinary characters, for texts that nobody vouches for
};

/// A tokeniser. All functions may be called by several threads at once.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// Ids are 0 .. vocab_size() - 1.
  [[nodiscard]] virtual std::int32_t vocab_size() const = 0;

  /// Appends the ids of `text` to `out`. Any bytes are accepted, valid UTF-8 or not; no token is
  /// added at either end. Errors: RequestError if the vocabulary lacks a byte of the text.
  /// Cost: O(n log n) at worst, linear on prose.
  void encode(std::string_view text,
              std::vector<std::int32_t>& out,
              SpecialTokens special = SpecialTokens::kRecognise) const {
    encode_text(text, special, out);
  }

  /// The bytes of `ids`: decode(encode(text)) == text for every text. The bytes of a single id may
  /// be part of a character. Errors: RequestError naming an id outside the vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// The id that ends a document, if the tokeniser has one.
  [[nodiscard]] virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// The largest position p, 0 < p < text.size(), at which a text that starts with `text` may be
  /// cut, whatever follows: encode(text) is encode(text[0, p)) and then encode(text[p, end)).
  /// 0 if there is none. `text` itself starts at the start of the whole text or at such a cut.
  [[nodiscard]] virtual std::size_t last_safe_cut(std::string_view text) const = 0;

 protected:
  virtual void encode_text(std::string_view text,
                           SpecialTokens special,
                           std::vector<std::int32_t>& out) const = 0;
};

/// "bytes": every byte is the id of its value, vocabulary 256, no end of text. Anything else is a
/// folder or file, see read_tokenizer_files. Errors: RequestError.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace lockstep
