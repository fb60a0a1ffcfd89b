#include "parallel/pipeline_plan.h"

#include <algorithm>

#include "parallel/schedule_check.h"

namespace lockstep {

long most_micro_batches(const VirtualLayout& layout, long total) {
  long most = 0;
  VirtualLayout other = layout;
  for (other.data_rank = 0; other.data_rank < layout.data_ranks; ++other.data_rank) {
    const int first = other.first_owned();
    most = std::max(most,
                    other.micro_batches(total, first + other.owned() - 1).end -
                        other.micro_batches(total, first).begin);
  }
  return most;
}

bool has_one_micro_batch_each(const VirtualLayout& layout, const std::set<long>& totals) {
  return totals.empty() || *totals.rbegin() <= layout.virtual_data;
}

bool splits_backward(const ParallelConfig& parallel, const MeshShape& mesh) {
  return mesh.pipeline > 1 && schedule_kind(parallel.schedule) == ScheduleKind::kZeroBubble;
}

PipelinePlan plan_pipeline(const ParallelConfig& parallel,
                           const MeshShape& mesh,
                           int pipeline_rank,
                           const VirtualLayout& layout,
                           const std::set<long>& totals) {
  const bool pipelined = mesh.pipeline > 1;
  const ScheduleKind kind =
      pipelined ? schedule_kind(parallel.schedule) : ScheduleKind::kOneForwardOneBackward;
  const long chunks = pipelined ? parallel.virtual_stages : 1;
  PipelinePlan plan;
  plan.in_flight.assign(static_cast<std::size_t>(mesh.pipeline),
                        std::vector<long>(static_cast<std::size_t>(chunks), 1));
  for (const long total : totals) {
    const long count = parallel.accumulate == "tree-fold"
                           ? ceil_div(total, static_cast<long>(layout.virtual_data)) *
                                 static_cast<long>(layout.owned())
                           : most_micro_batches(layout, total);
    PipelineSchedule schedule = make_schedule(kind, mesh.pipeline, chunks, count);
    const ScheduleReport report = check_schedule(schedule);
    for (std::size_t rank = 0; rank < plan.in_flight.size(); ++rank) {
      for (std::size_t chunk = 0; chunk < plan.in_flight[rank].size(); ++chunk) {
        plan.in_flight[rank][chunk] =
            std::max(plan.in_flight[rank][chunk], report.chunk_peaks[rank][chunk]);
      }
    }
    plan.schedules.emplace(total,
                           std::move(schedule.ranks[static_cast<std::size_t>(pipeline_rank)]));
  }
  return plan;
}

}  // namespace lockstep
