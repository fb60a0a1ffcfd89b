// NCCL's functions.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "emulated_device/fault.h"
#include "emulated_device/memory.h"
#include "emulated_device/nccl_communicator.h"
#include "emulated_device/nccl_transfer.h"
#include "emulated_device/operations.h"
#include "emulated_device/settings.h"
#include "emulated_device/streams.h"

namespace lockstep::emulated {
namespace {

constexpr std::uint64_t kIdentityMagic = 0x6c6f636b73746570U;

// Between ncclGroupStart and ncclGroupEnd of this thread.
struct OpenGroup {
  int depth = 0;
  std::vector<NcclCall> calls;
  std::vector<NcclGroupPointer> starting;
};

OpenGroup& open_group() {
  thread_local OpenGroup only;
  return only;
}

thread_local std::string last_error;

bool is_blocking(const ncclConfig_t* config) {
  return config == nullptr || config->blocking != 0;  // undefined: blocking
}

ncclResult_t finish_start(const NcclGroupPointer& group) {
  if (!group->is_blocking) {
    return ncclInProgress;
  }
  wait_for_tasks(group);
  last_error = group->error;
  return group->state;
}

// The first calls of a communicator that does not block are put into their streams some time later, when its state has
// been asked for: who records an event before that has marked nothing.
ncclResult_t start_calls(const std::vector<NcclCall>& calls) {
  NcclGroupPointer later;
  for (const NcclCall& call : calls) {
    if (!call.group->is_blocking && !call.group->was_used) {
      later = call.group;
    }
    call.group->was_used = true;
  }
  if (later == nullptr) {
    return submit_calls(calls);
  }
  later->state = ncclInProgress;
  NcclGroup* const group = later.get();
  group->tasks.emplace_back([group, calls, polls = random_below(3)]() mutable {
    if (polls-- > 0) {
      return false;
    }
    group->state = submit_calls(calls);
    return true;
  });
  return ncclInProgress;
}

ncclResult_t end_group() {
  OpenGroup& open = open_group();
  const std::vector<NcclCall> calls = std::exchange(open.calls, {});
  const std::vector<NcclGroupPointer> starting = std::exchange(open.starting, {});
  ncclResult_t result = ncclSuccess;
  for (const NcclGroupPointer& group :
       starting) {  // side by side: their members may be in any order
    if (group->is_blocking) {
      wait_with_others([&] {
        for (const NcclGroupPointer& other : starting) {
          other->advance();
        }
        return group->tasks.empty();
      });
    }
    const ncclResult_t status = finish_start(group);
    result = status == ncclSuccess ? result : status;
  }
  if (!calls.empty()) {
    result = start_calls(calls);
  }
  return result;
}

ncclResult_t refuse(ncclResult_t status, std::string why) {
  last_error = std::move(why);
  return status;
}

ncclResult_t add_call(NcclCall call, ncclComm_t comm) {
  call.group = group_of(comm);
  NcclGroup& group = *call.group;
  if (group.is_finalised) {
    fault("NCCL: a call on a communicator that was finalised");
  }
  if (group.state == ncclInProgress) {
    fault("NCCL: a call on a communicator whose last call is in progress (ncclCommGetAsyncError)");
  }
  if (group.state != ncclSuccess) {
    return group.state;
  }
  if (call.peer < 0 || call.peer >= group.size) {
    return refuse(ncclInvalidArgument,
                  fmt::format("peer or root {} of {} ranks", call.peer, group.size));
  }
  if (device_of_stream(call.stream) != group.device) {
    return refuse(ncclInvalidUsage, "the stream is of another device than the communicator");
  }
  if (open_group().depth > 0) {
    open_group().calls.push_back(call);
    return ncclSuccess;
  }
  return start_calls({call});
}

ncclResult_t add_start(const NcclGroupPointer& group) {
  if (open_group().depth > 0) {
    open_group().starting.push_back(group);
    return ncclSuccess;
  }
  return finish_start(group);
}

}  // namespace

void check_no_open_group(const char* function) {
  if (open_group().depth > 0) {
    fault("{} between ncclGroupStart and ncclGroupEnd: what is in the group has not been started",
          function);
  }
}

}  // namespace lockstep::emulated

using namespace lockstep::emulated;  // NOLINT(google-build-using-namespace): C functions follow

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  const ApiLock lock;
  if (comm != nullptr && !group_of(comm)->error.empty()) {
    last_error = group_of(comm)->error;
  }
  return last_error.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const ApiLock lock;
  static std::uint64_t count = 0;
  Identity identity;
  identity.magic = kIdentityMagic;
  identity.root = world_rank();
  identity.id = (static_cast<std::uint64_t>(world_rank()) + 1) << 32U | ++count;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &identity, sizeof identity);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const ApiLock lock;
  Identity identity;
  std::memcpy(static_cast<void*>(&identity), &id, sizeof identity);
  if (identity.magic != kIdentityMagic || size < 1 || rank < 0 || rank >= size) {
    return refuse(ncclInvalidArgument, "no identity of ncclGetUniqueId, or no such rank");
  }
  if (num_devices() == 0) {
    return ncclUnhandledCudaError;
  }
  const NcclGroupPointer group = join_group(identity, size, rank, is_blocking(config));
  *comm = handle_of(group);
  return add_start(group);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(
    ncclComm_t parent, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  const ApiLock lock;
  const NcclGroupPointer from = group_of(parent);
  NcclGroupPointer made;
  split_group(from, color, key, is_blocking(config), [&](const NcclGroupPointer& group) {
    made = group;
    *part = group == nullptr ? nullptr : handle_of(group);
  });
  return made == nullptr ? ncclSuccess : add_start(made);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const ApiLock lock;
  const NcclGroupPointer group = group_of(comm);
  group->advance();
  if (group->is_finalised && group->num_under_way > 0) {
    work_a_little();
    *state = ncclInProgress;
    return ncclSuccess;
  }
  *state = group->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const ApiLock lock;
  const NcclGroupPointer group = group_of(comm);
  group->is_finalised = true;
  if (!group->is_blocking) {
    return group->num_under_way > 0 ? ncclInProgress : ncclSuccess;
  }
  wait_with_others([&] { return group->num_under_way == 0; });
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const ApiLock lock;
  const NcclGroupPointer group = group_of(comm);
  wait_with_others([&] { return group->num_under_way == 0; });
  remove_group(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const ApiLock lock;
  group_of(comm)->is_aborted = true;
  group_of(comm)->tasks.clear();
  remove_group(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const ApiLock lock;
  *count = group_of(comm)->size;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const ApiLock lock;
  *rank = group_of(comm)->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const ApiLock lock;
  *device = group_of(comm)->device;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** address, std::size_t bytes) {
  return cudaMalloc(address, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* address) {
  return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, std::size_t, void** handle) {
  const ApiLock lock;
  group_of(comm);
  if (kind_of(data) != MemoryKind::kDevice) {
    return refuse(ncclInvalidArgument, "ncclCommRegister: not memory of a device");
  }
  *handle = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  const ApiLock lock;
  group_of(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  const ApiLock lock;
  ++open_group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const ApiLock lock;
  if (open_group().depth == 0) {
    return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  return --open_group().depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclSend(const void* from,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream) {
  const ApiLock lock;
  return add_call({Collective::kSend, nullptr, from, nullptr, count, type, ncclSum, peer, stream},
                  comm);
}

ncclResult_t ncclRecv(void* to,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream) {
  const ApiLock lock;
  return add_call({Collective::kReceive, nullptr, nullptr, to, count, type, ncclSum, peer, stream},
                  comm);
}

ncclResult_t ncclAllReduce(const void* from,
                           void* to,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclRedOp_t reduction,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  const ApiLock lock;
  return add_call({Collective::kAllReduce, nullptr, from, to, count, type, reduction, 0, stream},
                  comm);
}

ncclResult_t ncclReduce(const void* from,
                        void* to,
                        std::size_t count,
                        ncclDataType_t type,
                        ncclRedOp_t reduction,
                        int root,
                        ncclComm_t comm,
                        cudaStream_t stream) {
  const ApiLock lock;
  return add_call({Collective::kReduce, nullptr, from, to, count, type, reduction, root, stream},
                  comm);
}

ncclResult_t ncclReduceScatter(const void* from,
                               void* to,
                               std::size_t count,
                               ncclDataType_t type,
                               ncclRedOp_t reduction,
                               ncclComm_t comm,
                               cudaStream_t stream) {
  const ApiLock lock;
  return add_call(
      {Collective::kReduceScatter, nullptr, from, to, count, type, reduction, 0, stream}, comm);
}

ncclResult_t ncclAllGather(const void* from,
                           void* to,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  const ApiLock lock;
  return add_call({Collective::kAllGather, nullptr, from, to, count, type, ncclSum, 0, stream},
                  comm);
}

ncclResult_t ncclBroadcast(const void* from,
                           void* to,
                           std::size_t count,
                           ncclDataType_t type,
                           int root,
                           ncclComm_t comm,
                           cudaStream_t stream) {
  const ApiLock lock;
  return add_call({Collective::kBroadcast, nullptr, from, to, count, type, ncclSum, root, stream},
                  comm);
}

}  // extern "C"
