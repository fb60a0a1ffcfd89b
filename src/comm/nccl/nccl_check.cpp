#include "comm/nccl/nccl_check.h"

#include "base/error.h"

namespace lockstep {

void check_nccl(ncclResult_t status, const char* what) {
  if (status != ncclSuccess && status != ncclInProgress) {
    throw_error(
        "NCCL: {} failed: {} ({})", what, ncclGetErrorString(status), ncclGetLastError(nullptr));
  }
}

}  // namespace lockstep
