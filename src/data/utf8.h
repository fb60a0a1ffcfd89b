// The little of UTF-8 that tokenisers need.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// Bytes of the valid UTF-8 sequence (no overlong form, no surrogate, at most U+10FFFF) that starts
/// at text[at]; 0 if none does.
std::size_t utf8_length(std::string_view text, std::size_t at);

/// Position of the first byte at or after `from` that is part of no valid sequence; text.size() if
/// there is none.
std::size_t find_invalid_utf8(std::string_view text, std::size_t from);

/// Whether the text starts or ends with a character of Unicode's White_Space.
bool starts_with_white_space(std::string_view text);
bool ends_with_white_space(std::string_view text);

}  // namespace lockstep
