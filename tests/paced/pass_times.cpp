#include "paced/pass_times.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/trace.h"
#include "parallel/schedule_timeline.h"

namespace lockstep {
namespace {

constexpr SchedulePass kPasses[] = {SchedulePass::kForward,
                                    SchedulePass::kBackward,
                                    SchedulePass::kBackwardInput,
                                    SchedulePass::kBackwardWeight};
constexpr std::size_t kKinds = std::size(kPasses);

// 0 where there are none.
double median_ms(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle * 1e-6;
}

// What traces call a pass: its name in words.
bool is_called(const TraceEvent& event, SchedulePass pass) {
  std::string words(name_of(pass));
  std::replace(words.begin(), words.end(), '_', ' ');
  return event.category == std::string_view("pass") && event.name == words;
}

// kKinds milliseconds for every chunk of this rank.
std::vector<double> own_costs(int chunks) {
  const std::vector<TraceEvent> events = process_trace().events();
  std::vector<double> costs;
  costs.reserve(static_cast<std::size_t>(chunks) * kKinds);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const SchedulePass pass : kPasses) {
      std::vector<double> times;
      for (const TraceEvent& event : events) {
        if (event.place.chunk == chunk && is_called(event, pass)) {
          times.insert(times.end(), static_cast<double>(event.end_ns - event.begin_ns));
        }
      }
      costs.push_back(median_ms(std::move(times)));
    }
  }
  return costs;
}

// By global stage.
std::vector<PassCosts> all_costs(const PipelineSchedule& schedule, Communicator& pipeline) {
  const std::vector<double> own = own_costs(schedule.virtual_stages);
  LOCKSTEP_CHECK(own.size() <= Communicator::kMaxValues);
  std::vector<double> all(own.size() * static_cast<std::size_t>(schedule.stages));
  pipeline.all_gather(own, all);
  std::vector<PassCosts> costs;
  costs.reserve(static_cast<std::size_t>(schedule.global_stages()));
  for (int stage = 0; stage < schedule.global_stages(); ++stage) {
    const auto rank = static_cast<std::size_t>(stage % schedule.stages);
    const auto chunk = static_cast<std::size_t>(stage / schedule.stages);
    const double* const at = &all[rank * own.size() + chunk * kKinds];
    costs.push_back({at[0], at[1], at[2], at[3]});
  }
  return costs;
}

nlohmann::json table_of(const PipelineSchedule& schedule) {
  auto table = nlohmann::json::array();
  for (const auto& entries : schedule.ranks) {
    auto rank = nlohmann::json::array();
    for (const ScheduleEntry& entry : entries) {
      rank.push_back({name_of(entry.pass), entry.chunk, entry.micro_batch});
    }
    table.push_back(std::move(rank));
  }
  return table;
}

// The formula has one cost for all stages.
PassCosts mean(const std::vector<PassCosts>& costs) {
  PassCosts sum{0, 0, 0, 0};
  const auto count = static_cast<double>(costs.size());
  for (const PassCosts& stage : costs) {
    sum.forward += stage.forward / count;
    sum.backward += stage.backward / count;
    sum.backward_input += stage.backward_input / count;
    sum.backward_weight += stage.backward_weight / count;
  }
  return sum;
}

}  // namespace

std::string describe_passes(const PipelineSchedule& schedule,
                            double seconds,
                            Communicator& pipeline) {
  const std::vector<PassCosts> costs = all_costs(schedule, pipeline);
  std::vector<double> all_seconds(static_cast<std::size_t>(schedule.stages));
  pipeline.all_gather({&seconds, 1}, all_seconds);
  const ScheduleTimeline timeline = simulate(schedule, {costs, 0});
  const std::optional<double> formula = bubble_formula(schedule, mean(costs));

  nlohmann::json json{
      {"schedule", name_of(schedule.kind)},
      {"virtual_stages", schedule.virtual_stages},
      {"micro_batches", schedule.micro_batches},
      {"kernel_seconds", all_seconds},
      {"simulated_ms", timeline.total},
      {"simulated_bubble",
       std::accumulate(timeline.bubbles.begin(), timeline.bubbles.end(), 0.0) / schedule.stages},
      {"formula_bubble", formula ? nlohmann::json(*formula) : nlohmann::json()},
      {"ranks", table_of(schedule)}};
  for (const PassCosts& stage : costs) {
    auto passes = nlohmann::json::object();
    for (const SchedulePass pass : kPasses) {
      if (stage.of(pass) > 0) {
        passes[std::string(name_of(pass))] = stage.of(pass);
      }
    }
    json["stage_ms"].push_back(std::move(passes));
  }
  return json.dump(1) + "\n";
}

}  // namespace lockstep
