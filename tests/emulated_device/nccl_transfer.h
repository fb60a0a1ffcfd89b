// Calls of the emulated NCCL as operations of streams.
#pragma once

#include <memory>
#include <vector>

#include <nccl.h>

#include "emulated_device/nccl_communicator.h"

namespace lockstep::emulated {

enum class Collective : std::uint32_t {
  kSend,
  kReceive,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast
};

/// One call. `count` is the one that the call names.
struct NcclCall {
  Collective kind = Collective::kSend;
  NcclGroupPointer group;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  ///< or root
  cudaStream_t stream = nullptr;
};

std::size_t bytes_of(ncclDataType_t type);

/// Puts the calls into their streams: those of one stream go on at the same time. They are numbered now, in program
/// order (in a graph: at each start).
ncclResult_t submit_calls(const std::vector<NcclCall>& calls);

}  // namespace lockstep::emulated
