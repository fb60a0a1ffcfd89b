// Communicators of the emulated NCCL: how their members find each other, and what is on its way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nccl.h>

#include "emulated_device/nccl_messages.h"

namespace lockstep::emulated {

struct Identity {
  std::uint64_t magic = 0;
  std::uint64_t id = 0;
  int root = 0;  ///< the process that made it, which has to take part
};
static_assert(sizeof(Identity) <= sizeof(ncclUniqueId));

struct NcclGroup {
  std::uint64_t id = 0;
  int rank = 0;
  int size = 1;
  int device = 0;
  bool is_blocking = true;
  std::vector<int> world_ranks;  ///< of the members; empty until all have been found
  ncclResult_t state = ncclInProgress;
  std::string error;
  std::uint32_t num_collectives = 0;
  std::uint32_t num_splits = 0;
  std::vector<std::uint32_t> num_sent;  ///< to each member
  std::vector<std::uint32_t> num_received;
  int num_under_way = 0;  ///< operations in streams
  bool is_aborted = false;
  bool is_finalised = false;
  bool was_used = false;  ///< connections are made in the first group of calls
  /// What goes on with the communicator's start, or its first calls, when its state is asked for. True once done.
  std::vector<std::function<bool()>> tasks;

  /// Goes on with the tasks.
  void advance();
};

using NcclGroupPointer = std::shared_ptr<NcclGroup>;

/// Faults if the handle is none.
NcclGroupPointer group_of(ncclComm_t comm);
ncclComm_t handle_of(const NcclGroupPointer& group);
/// Forgets the handle.
void remove_group(ncclComm_t comm);
bool has_groups_of_several();

/// A group that finds its members as its tasks are advanced.
NcclGroupPointer join_group(const Identity& identity, int size, int rank, bool is_blocking);
/// The part of `parent` with one colour; null for NCCL_SPLIT_NOCOLOR. All members of `parent` call it.
void split_group(const NcclGroupPointer& parent,
                 int color,
                 int key,
                 bool is_blocking,
                 const std::function<void(NcclGroupPointer)>& give);

/// Works until the group's tasks are done; other streams and ranks go on meanwhile.
void wait_for_tasks(const NcclGroupPointer& group);

/// Lets the device go on while the host is elsewhere, as a GPU does: once there are ranks that may wait for it.
void start_helper_thread();

}  // namespace lockstep::emulated
