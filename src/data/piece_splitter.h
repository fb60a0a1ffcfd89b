// Pre-tokenisation: cuts a text into the pieces inside which byte pairs are merged.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer_files.h"

namespace lockstep {

/// The compiled splitting steps of a tokeniser. Constant after construction: threads may share it,
/// each with a Scratch of its own.
class PieceSplitter {
 public:
  /// What one thread needs while it splits.
  class Scratch;
  struct DeleteScratch {
    void operator()(Scratch* scratch) const;
  };
  using ScratchPointer = std::unique_ptr<Scratch, DeleteScratch>;

  /// `source` names the file in messages. Errors: RequestError for a pattern that is malformed,
  /// that can match nothing, or that uses syntax which PCRE2 would read differently from
  /// Oniguruma, the reference's engine.
  PieceSplitter(std::span<const SplitStep> steps, const std::string& source);
  PieceSplitter(const PieceSplitter&) = delete;
  PieceSplitter& operator=(const PieceSplitter&) = delete;
  ~PieceSplitter();

  [[nodiscard]] ScratchPointer make_scratch() const;

  /// Sets `ends` to where the pieces of `text` end, ascending, the last at text.size(). The text
  /// must be valid UTF-8. Errors: RequestError if a step that must cover the text does not, Error
  /// if the pattern exceeds the matcher's limits on this text.
  void split(std::string_view text, Scratch& scratch, std::vector<std::size_t>& ends) const;

  /// The largest position p, 0 < p < text.size(), at which cutting changes no piece, whatever
  /// follows `text`; 0 if there is none or the patterns are none of those that were analysed.
  /// `text` need not be valid UTF-8. See the source for why the cuts are safe.
  [[nodiscard]] std::size_t last_safe_cut(std::string_view text) const;

 private:
  struct Step;

  void split_piece(const Step& step,
                   std::string_view piece,
                   std::size_t offset,
                   Scratch& scratch,
                   std::vector<std::size_t>& ends) const;

  std::string source_;
  std::vector<std::unique_ptr<Step>> steps_;
  unsigned cuts_ = 0;  // kinds of cuts that are safe under all steps
};

/// The pattern, in Oniguruma's syntax, as PCRE2 has to be given it. Errors: RequestError naming
/// `source` for syntax that the two read differently.
std::string pattern_for_pcre2(const std::string& pattern, const std::string& source);

}  // namespace lockstep
