#include "base/hash.h"

#include <spdlog/fmt/fmt.h>

namespace lockstep {

std::string to_hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

}  // namespace lockstep
