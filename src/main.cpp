// Entry point of lockstep: see cli/application.h, and src/README.md for a walk through one step.
#include "cli/application.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "comm/nccl/cuda_accelerator.h"
#endif

int main(int argc, char** argv) {
#ifdef LOCKSTEP_WITH_CUDA
  lockstep::use_cuda();
#endif
  return lockstep::run_application(argc, argv);
}
