#include "base/human.h"

#include <limits>

#include "support/catch.h"

namespace lockstep {

TEST_CASE("bytes are shown in the largest unit that keeps them below 1024") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1024) == "1.0 KiB");
  CHECK(human_bytes(3L << 29) == "1.5 GiB");
  CHECK(human_bytes((1L << 20) - 1) == "1.0 MiB");
  CHECK(human_bytes(-2048) == "-2.0 KiB");
}

TEST_CASE("counts are shown in powers of 1000") {
  CHECK(human_count(950) == "950");
  CHECK(human_count(1.25) == "1.2");
  CHECK(human_count(10'700'000) == "10.7 M");
  CHECK(human_count(999'960) == "1.0 M");
  CHECK(human_count(1.2e9) == "1.2 G");
  CHECK(human_count(std::numeric_limits<double>::infinity()) == "-");
}

TEST_CASE("durations are shown in their two largest units") {
  CHECK(human_duration(0.421) == "0.42s");
  CHECK(human_duration(42.4) == "42s");
  CHECK(human_duration(59.6) == "1m 00s");
  CHECK(human_duration(192) == "3m 12s");
  CHECK(human_duration(7500) == "2h 05m");
  CHECK(human_duration(3 * 86400 + 4 * 3600) == "3d 04h");
  CHECK(human_duration(-1) == "-");
  CHECK(human_duration(std::numeric_limits<double>::quiet_NaN()) == "-");
}

}  // namespace lockstep
