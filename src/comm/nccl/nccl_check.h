// Turns failures of NCCL into Errors.
#pragma once

#include <nccl.h>

namespace lockstep {

/// Throws Error, naming `what` and what NCCL says, unless `status` is success or in progress.
void check_nccl(ncclResult_t status, const char* what);

}  // namespace lockstep
