// Checks a pipeline schedule without running it, and counts the activations it keeps alive.
#pragma once

#include <vector>

#include "parallel/pipeline_schedule.h"

namespace lockstep {

/// Where an entry stands: schedule.ranks[rank][index].
struct EntryPlace {
  int rank = 0;
  long index = 0;
};

struct ScheduleReport {
  /// Of each rank: most (chunk, micro-batch) pairs alive at once, from their forward to the end of
  /// their backward (backward_weight where split). A chunk holds 1 / virtual_stages of a rank.
  std::vector<long> peak_activations;
  /// The same of each rank and chunk alone. The sum over chunks may exceed the rank's peak.
  std::vector<std::vector<long>> chunk_peaks;
  /// All entries so that each comes after those it needs and after those before it on its rank.
  std::vector<EntryPlace> order;
};

/// Checks that every pass stands in the table exactly once and no other does, that within a rank
/// and chunk each kind of pass ascends in micro-batches, and that ranks which run their lists from
/// front to back, waiting for what they need, come to the end.
/// Throws Error naming the rank, the entry and what is wrong; of ranks that wait for each other all
/// of them. Cost: linear in the number of entries.
ScheduleReport check_schedule(const PipelineSchedule& schedule);

}  // namespace lockstep
