// Finds the tokens that stand for themselves, such as <|endoftext|>, in a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "formats/tokenizer_files.h"

namespace lockstep {

/// A set of added tokens. Matches are leftmost; of several at one place the longest counts.
class AddedTokenFinder {
 public:
  struct Match {
    std::size_t begin = 0;  // text.size() if there is none
    std::size_t end = 0;
    std::int32_t id = 0;
  };

  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  /// The first match at or after `from`; under kAsText tokens that are special are no matches.
  /// Cost: a table look-up a byte.
  [[nodiscard]] Match find(std::string_view text, std::size_t from, SpecialTokens special) const;

 private:
  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
};

}  // namespace lockstep
