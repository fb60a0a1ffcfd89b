// CUDA as the program's accelerator.
#pragma once

#include "comm/accelerator.h"

namespace lockstep {

/// Makes CUDA the accelerator of the program and its kernels those of CUDA queues. Called once, by main.
void use_cuda();

}  // namespace lockstep
