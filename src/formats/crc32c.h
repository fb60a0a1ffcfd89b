// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// The CRC-32C of the bytes (RFC 3720, appendix B.4). Cost: a table look-up a byte.
std::uint32_t crc32c(std::string_view bytes);

/// The form in which TFRecord files store a checksum, so that the checksum of data that contains
/// checksums stays sound: rotated right by 15 bits, plus a constant.
constexpr std::uint32_t masked_crc(std::uint32_t crc) {
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

}  // namespace lockstep
