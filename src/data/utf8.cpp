#include "data/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace lockstep {

namespace {

constexpr std::array<std::string_view, 25> kWhiteSpace = {
    "\t",           "\n",           "\v",           "\f",           "\r",           " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82",
    "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88",
    "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f",
    "\xe3\x80\x80"};

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<std::uint8_t>(text[at + i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) {
    return at < text.size() ? 1 : 0;
  }
  if (lead >= 0xc2 && lead <= 0xdf) {
    return continues(1) ? 2 : 0;
  }
  if ((lead & 0xf0U) == 0xe0U) {
    const std::uint32_t value = (lead & 0xfU) << 12U | (byte(1) & 0x3fU) << 6U;
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    return continues(1) && continues(2) && value >= 0x800 && !surrogate ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const std::uint32_t value = (lead & 0x7U) << 18U | (byte(1) & 0x3fU) << 12U;
    const bool in_range = value >= 0x10000 && value < 0x110000;
    return continues(1) && continues(2) && continues(3) && in_range ? 4 : 0;
  }
  return 0;
}

std::size_t find_invalid_utf8(std::string_view text, std::size_t from) {
  std::size_t at = from;
  while (at < text.size()) {
    // Eight ASCII bytes at a time.
    std::uint64_t word = 0;
    while (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080U) != 0) {
        break;
      }
      at += sizeof(word);
    }
    if (at == text.size()) {
      break;
    }
    const std::size_t length = utf8_length(text, at);
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return text.size();
}

bool starts_with_white_space(std::string_view text) {
  return std::any_of(kWhiteSpace.begin(), kWhiteSpace.end(), [&](std::string_view space) {
    return text.starts_with(space);
  });
}

bool ends_with_white_space(std::string_view text) {
  return std::any_of(kWhiteSpace.begin(), kWhiteSpace.end(), [&](std::string_view space) {
    return text.ends_with(space);
  });
}

}  // namespace lockstep
