#include "data/added_tokens.h"

#include <algorithm>

namespace lockstep {

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() > b.content.size();
  });
  for (AddedToken& token : tokens) {
    const auto first = static_cast<std::uint8_t>(token.content.front());
    by_first_byte_[first].push_back(std::move(token));
  }
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text,
                                               std::size_t from,
                                               SpecialTokens special) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const AddedToken& token : by_first_byte_[static_cast<std::uint8_t>(text[at])]) {
      const bool wanted = special == SpecialTokens::kRecognise || !token.special;
      if (wanted && text.substr(at).starts_with(token.content)) {
        return {at, at + token.content.size(), token.id};
      }
    }
  }
  return {text.size(), text.size(), 0};
}

}  // namespace lockstep
