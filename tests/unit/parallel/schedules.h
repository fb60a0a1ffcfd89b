// Short ways to write pipeline schedules.
#pragma once

#include <vector>

#include "parallel/pipeline_schedule.h"

namespace lockstep::test {

inline constexpr ScheduleKind kAllKinds[] = {ScheduleKind::kGpipe,
                                             ScheduleKind::kOneForwardOneBackward,
                                             ScheduleKind::kInterleaved,
                                             ScheduleKind::kZeroBubble};

inline ScheduleEntry forward(long micro_batch, int chunk = 0) {
  return {SchedulePass::kForward, chunk, micro_batch};
}

inline ScheduleEntry backward(long micro_batch, int chunk = 0) {
  return {SchedulePass::kBackward, chunk, micro_batch};
}

/// Calls `action` with the schedules of all kinds over 1 to 8 stages and 1 to 20 micro-batches,
/// with 2 to 4 chunks a rank where there are several.
template <typename Action>
void for_many_schedules(Action action) {
  for (const ScheduleKind kind : kAllKinds) {
    const bool chunked = kind == ScheduleKind::kInterleaved;
    for (long stages = 1; stages <= 8; ++stages) {
      for (long micro_batches = 1; micro_batches <= 20; ++micro_batches) {
        for (long chunks = chunked ? 2 : 1; chunks <= (chunked ? 4 : 1); ++chunks) {
          action(make_schedule(kind, stages, chunks, micro_batches));
        }
      }
    }
  }
}

}  // namespace lockstep::test
