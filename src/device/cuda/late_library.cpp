#include "device/cuda/late_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace lockstep {

void* find_in_library(const char* file, const char* name) {
  void* const library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);  // once a library, then counted
  if (library == nullptr) {
    throw_error("cannot load {}: {}", file, dlerror());
  }
  void* const address = dlsym(library, name);
  if (address == nullptr) {
    throw_error("{} has no function {}: {}", file, name, dlerror());
  }
  return address;
}

}  // namespace lockstep
