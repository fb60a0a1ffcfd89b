// emulated_faults --list | NAME right | NAME wrong: runs one fault of the list, or its twin without the fault.
// Exit status 0: nothing was found; 1: a result was wrong; that of the emulated device: it found something.
#include <cstdio>
#include <cstring>
#include <exception>

#include <mpi.h>

#include "emulated_device/faults/fault.h"

namespace lockstep::faults {
namespace {

int list_all() {
  for (const auto faults : {kernel_faults(), stream_faults(), nccl_faults()}) {
    for (const Fault& fault : faults) {
      std::printf("%s|%d|%s|%s\n", fault.name, fault.ranks, fault.message, fault.description);
    }
  }
  return 0;
}

int run(const Fault& fault, bool wrong) {
  try {
    if (fault.ranks > 1) {
      MPI_Init(nullptr, nullptr);
    }
    fault.run(wrong);
    if (fault.ranks > 1) {
      MPI_Finalize();
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    if (fault.ranks > 1) {
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return 1;
  }
}

int run_named(const char* name, bool wrong) {
  for (const auto faults : {kernel_faults(), stream_faults(), nccl_faults()}) {
    for (const Fault& fault : faults) {
      if (std::strcmp(fault.name, name) == 0) {
        return run(fault, wrong);
      }
    }
  }
  std::fprintf(stderr, "no fault is called %s\n", name);
  return 2;
}

}  // namespace
}  // namespace lockstep::faults

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    return lockstep::faults::list_all();
  }
  if (argc != 3) {
    std::fprintf(stderr, "usage: emulated_faults --list | NAME right | NAME wrong\n");
    return 2;
  }
  return lockstep::faults::run_named(argv[1], std::strcmp(argv[2], "wrong") == 0);
}
