// Cutting a range of independent items into tasks. Only for work whose bits no cut changes.
#pragma once

#include <algorithm>

#include "base/integers.h"
#include "device/cpu/thread_pool.h"

namespace lockstep {

/// Elements that are worth waking a thread for: a few microseconds of memory traffic.
inline constexpr long kElementsPerTask = 32768;

/// Calls run(IndexRange) for ranges of `step` (at least 1) items that cover [0, total).
template <class Run>
void for_ranges(ThreadPool& threads, long total, long step, const Run& run) {
  step = std::max(1L, step);
  threads.run(ceil_div(total, step), [&](long task) {
    run(IndexRange{task * step, std::min((task + 1) * step, total)});
  });
}

}  // namespace lockstep
