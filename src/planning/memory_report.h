// The memory of every rank of a run, summed up by stage of the pipeline and by host.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/integers.h"
#include "training/rank_plan.h"

namespace lockstep {

/// What a rank of the pipeline has of the model.
struct StageContents {
  std::vector<IndexRange> layers;  ///< one run a chunk
  bool embeds = false;
  bool has_head = false;
};

struct RankMemory {
  int rank = 0;
  MemoryPlan memory;
};

struct StageMemory {
  StageContents contents;
  RankMemory first;                   ///< data rank 0, tensor rank 0
  std::optional<RankMemory> largest;  ///< of the stage's other ranks, if it needs another amount
};

struct MemoryReport {
  long num_parameters = 0;
  std::vector<StageMemory> stages;
  RankMemory largest;
  long num_hosts = 1;
  long largest_host = 0;
  std::size_t largest_host_bytes = 0;  ///< of all its ranks together
};

/// Plans all ranks. Takes no memory for the model. Cost: the passes of every part of the model on the
/// dry device, and O(buckets * data ranks) a rank.
MemoryReport report_memory(const RunOutline& outline);

}  // namespace lockstep
