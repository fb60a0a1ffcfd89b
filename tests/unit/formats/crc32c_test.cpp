#include "formats/crc32c.h"

#include <string>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("the checksums of RFC 3720 come out") {
  std::string rising;
  for (char byte = 0; byte < 32; ++byte) {
    rising.push_back(byte);
  }
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
  CHECK(crc32c(rising) == 0x46dd794eU);
  CHECK(crc32c(std::string(rising.rbegin(), rising.rend())) == 0x113fdb5cU);
  CHECK(crc32c("123456789") == 0xe3069283U);
  CHECK(crc32c("") == 0U);
}

TEST_CASE("a masked checksum is rotated by 15 bits and shifted by a constant") {
  CHECK(masked_crc(0U) == 0xa282ead8U);
  CHECK(masked_crc(0x00008000U) == 0xa282ead9U);
  CHECK(masked_crc(0x00000001U) == 0xa284ead8U);
}

}  // namespace lockstep
