// From Oniguruma's syntax of regular expressions to PCRE2's.
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "data/piece_splitter.h"

namespace lockstep {

namespace {

// Escapes that mean the same in both: classes of characters by property, and control characters.
constexpr std::string_view kSameEscapes = "dDpPrntfx";

class Translator {
 public:
  Translator(const std::string& pattern, const std::string& source)
      : pattern_(pattern), source_(source) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        translate_escape();
      } else if (in_class_) {
        translate_in_class(c);
      } else {
        translate_outside(c);
      }
    }
    return std::move(result_);
  }

 private:
  void copy(std::size_t bytes) {
    result_.append(pattern_, at_, bytes);
    at_ += bytes;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    throw_request_error("{}: the pattern {} uses {} at byte {}, which is not supported",
                        source_,
                        pattern_,
                        what,
                        at_);
  }

  // White space is spelt out as the property: PCRE2's \s also holds U+180E.
  void translate_escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (c == 's' || c == 'S') {
      result_ += c == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      at_ += 2;
    } else if (c == 'u' && at_ + 6 <= pattern_.size()) {
      result_ += "\\x{" + pattern_.substr(at_ + 2, 4) + "}";
      at_ += 6;
    } else if (c != '\0' && (kSameEscapes.find(c) != std::string_view::npos ||
                             std::ispunct(static_cast<unsigned char>(c)) != 0)) {
      copy(2);
      if (at_ < pattern_.size() && pattern_[at_] == '{' && (c == 'p' || c == 'P' || c == 'x')) {
        copy(std::min(pattern_.find('}', at_), pattern_.size() - 1) + 1 - at_);
      }
    } else {
      refuse(pattern_.substr(at_, 2));
    }
  }

  // Brackets nest and '&&' intersects in Oniguruma only.
  void translate_in_class(char c) {
    if (c == '[') {
      refuse("a bracket inside brackets");
    }
    if (pattern_.compare(at_, 2, "&&") == 0) {
      refuse("'&&' inside brackets");
    }
    in_class_ = c != ']';
    copy(1);
  }

  // '^' and '$' stand at lines in Oniguruma; groups that look back would make cuts unsafe.
  void translate_outside(char c) {
    if (c == '^' || c == '$') {
      refuse("an anchor");
    }
    if (pattern_.compare(at_, 2, "(*") == 0 || pattern_.compare(at_, 3, "(?<") == 0) {
      refuse("a verb, a named group or a look-behind");
    }
    // "{1,3}+" repeats in Oniguruma and is possessive in PCRE2.
    if (pattern_.compare(at_, 2, "}+") == 0) {
      refuse("'}+'");
    }
    in_class_ = c == '[';
    copy(in_class_ && pattern_.compare(at_, 2, "[^") == 0 ? 2 : 1);
  }

  const std::string& pattern_;
  const std::string& source_;
  std::string result_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string pattern_for_pcre2(const std::string& pattern, const std::string& source) {
  return Translator(pattern, source).translate();
}

}  // namespace lockstep
