#include "nn/pass.h"

#include "base/error.h"

namespace lockstep {

Recompute recompute_from(const std::string& name) {
  if (name == "none") {
    return Recompute::kNone;
  }
  if (name == "selective") {
    return Recompute::kSelective;
  }
  LOCKSTEP_CHECK(name == "full");
  return Recompute::kFull;
}

}  // namespace lockstep
