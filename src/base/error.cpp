#include "base/error.h"

namespace lockstep {

void check_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(fmt::format(
      "internal error (please report it): {} does not hold at {}:{}", condition, file, line));
}

}  // namespace lockstep
