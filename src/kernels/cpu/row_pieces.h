// How kernels whose rows are independent are cut into tasks: by shape, never by threads.
#pragma once

#include <algorithm>

#include "base/integers.h"
#include "device/cpu/thread_pool.h"

namespace lockstep {

/// Calls body(row) for every row, some microseconds of rows to a task.
template <typename Body>
void for_each_row(ThreadPool& threads, long rows, long cols, const Body& body) {
  constexpr long kTaskElements = 16384;
  const long task_rows = std::max(1L, kTaskElements / std::max(1L, cols));
  threads.run(ceil_div(rows, task_rows), [&](long task) {
    const long end = std::min(rows, (task + 1) * task_rows);
    for (long row = task * task_rows; row < end; ++row) {
      body(row);
    }
  });
}

}  // namespace lockstep
