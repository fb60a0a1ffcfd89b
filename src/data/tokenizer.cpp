#include "data/tokenizer.h"

#include "base/error.h"
#include "data/byte_level_bpe.h"
#include "formats/tokenizer_files.h"

namespace lockstep {

namespace {

class RawBytes final : public Tokenizer {
 public:
  [[nodiscard]] std::int32_t vocab_size() const override { return 256; }
  [[nodiscard]] std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  [[nodiscard]] std::size_t last_safe_cut(std::string_view text) const override {
    return text.empty() ? 0 : text.size() - 1;
  }

  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const override {
    std::string bytes;
    bytes.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > 255) {
        throw_request_error("decode: id {} at position {} is no byte (0 to 255)", ids[i], i);
      }
      bytes.push_back(static_cast<char>(ids[i]));
    }
    return bytes;
  }

 protected:
  void encode_text(std::string_view text,
                   SpecialTokens /*special*/,
                   std::vector<std::int32_t>& out) const override {
    for (const char byte : text) {
      out.push_back(static_cast<std::uint8_t>(byte));
    }
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  if (spec == "bytes") {
    return std::make_unique<RawBytes>();
  }
  return std::make_unique<ByteLevelBpe>(read_tokenizer_files(spec));
}

}  // namespace lockstep
