#include "formats/crc32c.h"

#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  constexpr std::uint32_t kReversedPolynomial = 0x82f63b78U;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1U) ^ ((value & 1U) != 0 ? kReversedPolynomial : 0U);
    }
    table[byte] = value;
  }
  return table;
}

constexpr auto kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
  }
  return ~crc;
}

}  // namespace lockstep
