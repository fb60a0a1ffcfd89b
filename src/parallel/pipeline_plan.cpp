#include "parallel/pipeline_plan.h"

#include <algorithm>

#include "parallel/schedule_check.h"

namespace lockstep {

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
    const int last = layout.first_owned() + layout.owned() - 1;
    const long count = layout.micro_batches(total, last).end -
                       layout.micro_batches(total, layout.first_owned()).begin;
    if (count == 0 || plan.schedules.contains(count)) {
      continue;
    }
    PipelineSchedule schedule = make_schedule(kind, mesh.pipeline, chunks, count);
    const ScheduleReport report = check_schedule(schedule);
    for (std::size_t rank = 0; rank < plan.in_flight.size(); ++rank) {
      for (std::size_t chunk = 0; chunk < plan.in_flight[rank].size(); ++chunk) {
        plan.in_flight[rank][chunk] =
            std::max(plan.in_flight[rank][chunk], report.chunk_peaks[rank][chunk]);
      }
    }
    plan.schedules.emplace(count,
                           std::move(schedule.ranks[static_cast<std::size_t>(pipeline_rank)]));
  }
  return plan;
}

}  // namespace lockstep
