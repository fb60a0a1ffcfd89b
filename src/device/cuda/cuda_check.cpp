#include "device/cuda/cuda_check.h"

#include "base/error.h"

namespace lockstep {

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw_error(
        "CUDA: {} failed: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
  }
}

}  // namespace lockstep
