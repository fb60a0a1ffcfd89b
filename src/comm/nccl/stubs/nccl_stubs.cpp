// The functions of NCCL that this program calls, loaded at the first call (device/cuda/late_library.h).
#include <nccl.h>

#include "device/cuda/late_library.h"

#define NCCL_FUNCTION(result, name, parameters, arguments) \
  LOCKSTEP_LATE_FUNCTION("libnccl.so.2", result, name, parameters, arguments)

// Names and numbers of parameters are NVIDIA's.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,readability-function-size)
NCCL_FUNCTION(ncclResult_t, ncclGetVersion, (int* version), (version))
NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))
NCCL_FUNCTION(const char*, ncclGetErrorString, (ncclResult_t result), (result))
NCCL_FUNCTION(const char*, ncclGetLastError, (ncclComm_t comm), (comm))
NCCL_FUNCTION(ncclResult_t,
              ncclCommInitRankConfig,
              (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),
              (comm, ranks, id, rank, config))
NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, (ncclComm_t comm), (comm))
NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))
NCCL_FUNCTION(ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))
NCCL_FUNCTION(ncclResult_t,
              ncclCommGetAsyncError,
              (ncclComm_t comm, ncclResult_t* error),
              (comm, error))
NCCL_FUNCTION(ncclResult_t, ncclGroupStart, (), ())
NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, (), ())
NCCL_FUNCTION(ncclResult_t,
              ncclSend,
              (const void* data,
               size_t count,
               ncclDataType_t type,
               int peer,
               ncclComm_t comm,
               cudaStream_t stream),
              (data, count, type, peer, comm, stream))
NCCL_FUNCTION(
    ncclResult_t,
    ncclRecv,
    (void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
    (data, count, type, peer, comm, stream))
NCCL_FUNCTION(ncclResult_t,
              ncclAllGather,
              (const void* from,
               void* to,
               size_t count,
               ncclDataType_t type,
               ncclComm_t comm,
               cudaStream_t stream),
              (from, to, count, type, comm, stream))
NCCL_FUNCTION(ncclResult_t,
              ncclAllReduce,
              (const void* from,
               void* to,
               size_t count,
               ncclDataType_t type,
               ncclRedOp_t operation,
               ncclComm_t comm,
               cudaStream_t stream),
              (from, to, count, type, operation, comm, stream))
// NOLINTEND(readability-inconsistent-declaration-parameter-name,readability-function-size)
