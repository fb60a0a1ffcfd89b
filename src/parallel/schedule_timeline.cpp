#include "parallel/schedule_timeline.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "parallel/schedule_check.h"

namespace lockstep {
namespace {

bool is_cost(double cost) {
  return std::isfinite(cost) && cost >= 0;
}

void check_costs(const PipelineSchedule& schedule, const ScheduleCosts& costs) {
  const auto given = std::ssize(costs.stages);
  if (given != 1 && given != schedule.global_stages()) {
    throw_error(
        "schedule: costs of {} stages, expected 1 for all or {}", given, schedule.global_stages());
  }
  bool valid = is_cost(costs.message);
  for (const PassCosts& stage : costs.stages) {
    valid = valid && is_cost(stage.forward) && is_cost(stage.backward) &&
            is_cost(stage.backward_input) && is_cost(stage.backward_weight);
  }
  if (!valid) {
    throw_error("schedule: expected costs that are finite and not negative");
  }
}

// Ends of passes by class, global stage and micro-batch. backward_weight is nobody's input.
class Ends {
 public:
  explicit Ends(const PipelineSchedule& schedule)
      : schedule_(schedule),
        ends_(2 * static_cast<std::size_t>(schedule.global_stages() * schedule.micro_batches)) {}

  double& of(int rank, const ScheduleEntry& entry) {
    const long stage = schedule_.global_stage(rank, entry.chunk) +
                       (entry.pass == SchedulePass::kForward ? 0 : schedule_.global_stages());
    return ends_[static_cast<std::size_t>(stage * schedule_.micro_batches + entry.micro_batch)];
  }

 private:
  const PipelineSchedule& schedule_;
  std::vector<double> ends_;
};

}  // namespace

double PassCosts::of(SchedulePass pass) const {
  switch (pass) {
    case SchedulePass::kForward:
      return forward;
    case SchedulePass::kBackward:
      return backward;
    case SchedulePass::kBackwardInput:
      return backward_input;
    case SchedulePass::kBackwardWeight:
      return backward_weight;
  }
  LOCKSTEP_CHECK(false);
  return 0;
}

ScheduleTimeline simulate(const PipelineSchedule& schedule, const ScheduleCosts& costs) {
  const ScheduleReport report = check_schedule(schedule);
  check_costs(schedule, costs);
  ScheduleTimeline timeline;
  timeline.ranks.resize(schedule.ranks.size());
  std::vector<double> busy(schedule.ranks.size(), 0);
  Ends ends(schedule);
  for (const EntryPlace& place : report.order) {
    const auto rank = static_cast<std::size_t>(place.rank);
    const ScheduleEntry& entry = schedule.ranks[rank][static_cast<std::size_t>(place.index)];
    auto& times = timeline.ranks[rank];
    double start = times.empty() ? 0 : times.back().end;  // what it needs of its own rank has ended
    if (const auto input = schedule.incoming(place.rank, entry)) {
      const double message = input->rank == place.rank ? 0 : costs.message;
      start = std::max(start, ends.of(input->rank, input->entry) + message);
    }
    const auto stage = static_cast<std::size_t>(schedule.global_stage(place.rank, entry.chunk));
    const double cost = costs.stages[costs.stages.size() == 1 ? 0 : stage].of(entry.pass);
    times.push_back({start, start + cost});
    busy[rank] += cost;
    timeline.total = std::max(timeline.total, start + cost);
    if (entry.pass != SchedulePass::kBackwardWeight) {
      ends.of(place.rank, entry) = start + cost;
    }
  }
  if (!std::isfinite(timeline.total) || timeline.total <= 0) {
    throw_error("schedule: these costs add up to a time of {}", timeline.total);
  }
  for (const double time : busy) {
    timeline.bubbles.push_back(1 - time / timeline.total);
  }
  return timeline;
}

std::optional<double> bubble_formula(const PipelineSchedule& schedule, const PassCosts& costs) {
  const auto count = static_cast<double>(schedule.micro_batches);
  const double others = schedule.stages - 1;
  switch (schedule.kind) {
    case ScheduleKind::kGpipe:
    case ScheduleKind::kOneForwardOneBackward:
      return others / (count + others);
    case ScheduleKind::kInterleaved:
      if (schedule.micro_batches % schedule.stages != 0) {
        return std::nullopt;
      }
      return others / (schedule.virtual_stages * count + others);
    case ScheduleKind::kZeroBubble: {
      if (schedule.micro_batches < schedule.stages || costs.backward_weight > costs.forward) {
        return std::nullopt;
      }
      const double bubble =
          others * (costs.forward + std::max(costs.backward_input - costs.backward_weight, 0.0));
      const double work = costs.forward + costs.backward_input + costs.backward_weight;
      return bubble / (count * work + bubble);
    }
  }
  LOCKSTEP_CHECK(false);
  return std::nullopt;
}

}  // namespace lockstep
