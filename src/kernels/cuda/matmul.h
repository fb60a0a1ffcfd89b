// What the CUDA matrix product tells the rest of the program about itself.
#pragma once

#include <string>

#include "device/cuda/cuda_queue.h"

namespace lockstep {

/// The algorithms that cuBLASLt chose for the products launched on `queue` so far, which decide bits: a line
/// with the library's version, then one for each shape, in order of the shapes.
std::string matmul_choices(const CudaQueue& queue);

}  // namespace lockstep
