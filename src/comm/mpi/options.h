// What can be chosen about a group of MPI ranks.
#pragma once

#include <cstddef>
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
  /// Longer sends and receives travel in pieces of this size (MPI counts in int), between hosts in
  /// smaller ones if it is larger than what MPI sends at once: a whole number of bytes up to
  /// 2^31 - 1, the same on all ranks. Tests make it small.
  std::size_t message_piece_bytes = std::size_t{256} << 20U;
};

}  // namespace lockstep
