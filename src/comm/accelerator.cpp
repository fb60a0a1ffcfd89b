#include "comm/accelerator.h"

namespace lockstep {
namespace {

const Accelerator*& installed() {
  static const Accelerator* value = nullptr;
  return value;
}

}  // namespace

const Accelerator* accelerator() {
  return installed();
}

void set_accelerator(const Accelerator* accelerator) {
  installed() = accelerator;
}

}  // namespace lockstep
