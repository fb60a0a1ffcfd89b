// What can be chosen about a group of MPI ranks.
#pragma once

#include <functional>

#include "device/cpu/thread_pool.h"

namespace lockstep {

struct MpiOptions {
  /// Threads for the sums of large buffers; null: the caller's thread. Outlives the communicator.
  ThreadPool* threads = nullptr;
  /// Gives up after this many seconds of waiting for other ranks; 0: never.
  double time_limit_seconds = 600;
  /// Splits the ranks of a host further, as if those with different numbers were on different
  /// hosts: tests the messages between hosts on one machine. Empty: hosts as they are.
  std::function<int(int global_rank)> host_of_rank;
};

}  // namespace lockstep
