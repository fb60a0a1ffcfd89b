// Turns failures of the CUDA runtime into Errors.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep {

/// Throws Error, naming `what` and what CUDA says, unless `status` is success. A failure on the device that
/// came earlier shows here as well, as CUDA reports it late.
void check_cuda(cudaError_t status, const char* what);

}  // namespace lockstep
