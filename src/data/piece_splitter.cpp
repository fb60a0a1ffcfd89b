#include "data/piece_splitter.h"

#include <algorithm>
#include <array>
#include <cstdint>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "data/utf8.h"

namespace lockstep {

namespace {

// Where a text may be cut.
//
// Let c be a position with the characters a before and b after it. Cutting at c is safe when (1) in
// the whole text a match always ends at c, and (2) the matches before c are the same when the text
// ends at c. What follows c then starts at the start of a match, and as no pattern looks back it is
// matched as before. (Only patterns given below are trusted; others are never cut.)
//
// GPT-2's pattern. Matches that hold a character that is no space hold a space at most as their
// first character, and the others hold white space only: so none holds a followed by b where a is
// no white space and b is (kAfterWord*). That is (1). For (2): the only look-ahead is after a run of
// white space, and a run before c is followed by a character before c, since a is none.
//
// The patterns of GPT-4, Llama 3 and Qwen. Here a newline may follow punctuation in one match, so
// the case of b a newline needs a letter or digit for a; matches that hold one end in letters or
// digits. With b a blank or tab the argument above holds. There are also cuts behind a newline a
// where b is no white space (kAfterNewline): (1) no match holds a newline and then a character that
// is no white space, because the optional first character of a word excludes newlines; (2) the run
// of white space before c ends in a newline, so it is taken by the alternatives that end in [\r\n]
// and are greedy, never by the one that looks ahead.
//
// Splitting off digits: such a match holds no white space, so that each of the cuts lies at the end
// of a match or between two matches. A later step sees both characters in one piece, or c between
// two pieces; so cuts that are safe under each step are safe under all.
constexpr unsigned kAfterWordBeforeBlank = 1;      // a no white space; b a space or a tab
constexpr unsigned kAfterLetterBeforeNewline = 2;  // a an ASCII letter or digit; b LF or CR
constexpr unsigned kAfterWordBeforeNewline = 4;    // a no white space; b LF or CR
constexpr unsigned kAfterNewline = 8;              // a LF; b no white space
constexpr unsigned kAllCuts = 15;

struct KnownPattern {
  const char* text;
  unsigned cuts;
};
constexpr unsigned kGpt4Cuts = kAfterWordBeforeBlank | kAfterLetterBeforeNewline | kAfterNewline;
constexpr std::array<KnownPattern, 5> kKnownPatterns = {{
    {R"(\p{N})", kAllCuts},
    {R"(\p{N}+)", kAllCuts},
    {R"(\p{N}{1,3})", kAllCuts},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kGpt4Cuts},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     kGpt4Cuts},
}};

unsigned cuts_of(const SplitStep& step) {
  if (step.literal) {
    return 0;
  }
  if (step.pattern == kGpt2Pattern) {
    return kAfterWordBeforeBlank | kAfterLetterBeforeNewline | kAfterWordBeforeNewline;
  }
  const auto* const known =
      std::find_if(kKnownPatterns.begin(), kKnownPatterns.end(), [&](const KnownPattern& pattern) {
        return step.pattern == pattern.text;
      });
  return known == kKnownPatterns.end() ? 0 : known->cuts;
}

bool is_ascii_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The kind of cut that `at` is, 0 if none.
unsigned cut_at(std::string_view text, std::size_t at) {
  const char before = text[at - 1];
  const char after = text[at];
  if (after == ' ' || after == '\t') {
    return ends_with_white_space(text.substr(0, at)) ? 0 : kAfterWordBeforeBlank;
  }
  if (after == '\n' || after == '\r') {
    if (is_ascii_letter_or_digit(before)) {
      return kAfterLetterBeforeNewline | kAfterWordBeforeNewline;
    }
    return ends_with_white_space(text.substr(0, at)) ? 0 : kAfterWordBeforeNewline;
  }
  // The character after must be whole, to see that it is no white space.
  const bool whole = utf8_length(text, at) != 0;
  return before == '\n' && whole && !starts_with_white_space(text.substr(at)) ? kAfterNewline : 0;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return {text.begin(), std::find(text.begin(), text.end(), PCRE2_UCHAR{0})};
}

struct FreePcre2 {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <typename T>
using Pcre2Pointer = std::unique_ptr<T, FreePcre2>;

}  // namespace

struct PieceSplitter::Step {
  Pcre2Pointer<pcre2_code> code;
  bool must_cover = false;
};

class PieceSplitter::Scratch {
 public:
  static constexpr std::size_t kStackBytes = std::size_t{64} << 10U;
  static constexpr std::size_t kMaxStackBytes = std::size_t{64} << 20U;

  Scratch()
      : context(pcre2_match_context_create(nullptr)),
        data(pcre2_match_data_create(1, nullptr)),
        stack(pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr)) {
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  Pcre2Pointer<pcre2_match_context> context;
  Pcre2Pointer<pcre2_match_data> data;
  Pcre2Pointer<pcre2_jit_stack> stack;
  std::vector<std::size_t> coarse_ends;
};

void PieceSplitter::DeleteScratch::operator()(Scratch* scratch) const {
  delete scratch;
}

PieceSplitter::PieceSplitter(std::span<const SplitStep> steps, const std::string& source)
    : source_(source), cuts_(kAllCuts) {
  const Pcre2Pointer<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  for (const SplitStep& step : steps) {
    const std::string pattern =
        step.literal ? step.pattern : pattern_for_pcre2(step.pattern, source);
    const std::uint32_t options =
        PCRE2_UTF | (step.literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    int error = 0;
    PCRE2_SIZE position = 0;
    auto compiled = std::make_unique<Step>();
    compiled->must_cover = step.must_cover;
    compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                       pattern.size(),
                                       options,
                                       &error,
                                       &position,
                                       context.get()));
    if (compiled->code == nullptr) {
      throw_request_error("{}: the pattern {} is malformed at byte {}: {}",
                          source,
                          pattern,
                          position,
                          message_of(error));
    }
    std::uint32_t matches_empty = 0;
    pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) {
      throw_request_error("{}: the pattern {} can match nothing at all", source, pattern);
    }
    // Where this fails (no JIT on this machine) the interpreter matches instead.
    pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
    steps_.push_back(std::move(compiled));
    cuts_ &= cuts_of(step);
  }
  if (steps.empty()) {
    cuts_ = 0;
  }
}

PieceSplitter::~PieceSplitter() = default;

PieceSplitter::ScratchPointer PieceSplitter::make_scratch() const {
  return ScratchPointer(new Scratch);
}

void PieceSplitter::split_piece(const Step& step,
                                std::string_view piece,
                                std::size_t offset,
                                Scratch& scratch,
                                std::vector<std::size_t>& ends) const {
  // An honest pattern backtracks over the piece a few times at most.
  constexpr std::size_t kFreeSteps = 10'000'000;
  pcre2_set_match_limit(scratch.context.get(),
                        static_cast<std::uint32_t>(
                            std::min<std::size_t>(kFreeSteps + 16 * piece.size(), UINT32_MAX)));
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
  const PCRE2_SIZE* const match = pcre2_get_ovector_pointer(scratch.data.get());
  std::size_t at = 0;
  while (at < piece.size()) {
    const int found = pcre2_match(step.code.get(),
                                  subject,
                                  piece.size(),
                                  at,
                                  PCRE2_NO_UTF_CHECK,
                                  scratch.data.get(),
                                  scratch.context.get());
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      throw_error("{}: splitting failed at byte {} of a piece of {}: {}",
                  source_,
                  at,
                  piece.size(),
                  message_of(found));
    }
    const std::size_t begin = found < 0 ? piece.size() : match[0];
    if (begin > at) {
      if (step.must_cover) {
        throw_request_error("{}: the pattern matches no part of bytes {} to {} of the text",
                            source_,
                            offset + at,
                            offset + begin);
      }
      ends.push_back(offset + begin);
    }
    if (found >= 0) {
      ends.push_back(offset + match[1]);
    }
    at = found < 0 ? begin : match[1];
  }
}

void PieceSplitter::split(std::string_view text,
                          Scratch& scratch,
                          std::vector<std::size_t>& ends) const {
  ends.clear();
  if (text.empty()) {
    return;
  }
  ends.push_back(text.size());
  for (const auto& step : steps_) {
    scratch.coarse_ends.swap(ends);
    ends.clear();
    std::size_t begin = 0;
    for (const std::size_t end : scratch.coarse_ends) {
      split_piece(*step, text.substr(begin, end - begin), begin, scratch, ends);
      begin = end;
    }
  }
}

std::size_t PieceSplitter::last_safe_cut(std::string_view text) const {
  if (cuts_ == 0 || text.empty()) {
    return 0;
  }
  std::size_t at = text.size() - 1;
  while (at > 0 && (cut_at(text, at) & cuts_) == 0) {
    --at;
  }
  return at;
}

}  // namespace lockstep
