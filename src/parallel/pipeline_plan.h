// What a rank of a pipeline does in a step, for every number of micro-batches it can have.
#pragma once

#include <set>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/parallel_config.h"
#include "parallel/step_executor.h"
#include "parallel/virtual_layout.h"

namespace lockstep {

struct PipelinePlan {
  ScheduleByCount schedules;
  /// Most micro-batches between forward and backward, by rank of the pipeline and chunk.
  std::vector<std::vector<long>> in_flight;
};

/// `totals`: micro-batches of a global batch, every number there can be. A rank without a pipeline runs
/// forward and backward in turn. A list is as long as the rank of the data group with the most work needs.
PipelinePlan plan_pipeline(const ParallelConfig& parallel,
                           const MeshShape& mesh,
                           int pipeline_rank,
                           const VirtualLayout& layout,
                           const std::set<long>& totals);

/// Whether a rank makes its backward passes in two parts.
bool splits_backward(const ParallelConfig& parallel, const MeshShape& mesh);

/// Micro-batches of the rank of the data group that has the most of `total`.
long most_micro_batches(const VirtualLayout& layout, long total);

/// Whether no virtual rank ever has more than one micro-batch.
bool has_one_micro_batch_each(const VirtualLayout& layout, const std::set<long>& totals);

}  // namespace lockstep
