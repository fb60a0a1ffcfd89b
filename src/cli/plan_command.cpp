#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/integers.h"
#include "cli/commands.h"
#include "cli/model_source.h"
#include "cli/validate.h"
#include "parallel/schedule_text.h"
#include "planning/memory_text.h"

namespace lockstep {
namespace {

// What the drawing depends on, as the user or the default set it.
void print_settings(const Configuration& config) {
  constexpr std::string_view kKeys[] = {"parallel.pipeline",
                                        "parallel.schedule",
                                        "parallel.virtual_stages",
                                        "parallel.data",
                                        "train.global_batch_size",
                                        "train.micro_batch_size"};
  for (const std::string_view key : kKeys) {
    const bool rest = key == "parallel.data" && config.parallel.data == 0;
    fmt::print("{}{}\n", describe_setting(config, key), rest ? ", taken as 1" : "");
  }
}

void draw(const Configuration& config) {
  const long data_ranks = std::max(1L, config.parallel.data);
  const long all = ceil_div(config.train.global_batch_size, config.train.micro_batch_size);
  const long most = ceil_div(all, data_ranks);
  const PipelineSchedule schedule = make_schedule(schedule_kind(config.parallel.schedule),
                                                  config.parallel.pipeline,
                                                  config.parallel.virtual_stages,
                                                  most);
  print_settings(config);
  fmt::print("{} micro-batches a step, {} a data rank{}\n\n",
             all,
             most,
             all % data_ranks == 0 ? "" : " at most (drawn), one less on others");
  fmt::print("{}", draw_schedule(schedule, ScheduleCosts{}));
}

}  // namespace

int run_plan(const Request& request, MpiRuntime& runtime) {
  if (runtime.global_rank() != 0) {
    return 0;
  }
  if (request.draw_schedule) {
    draw(request.config);
    return 0;
  }
  Configuration config = request.config;
  adopt_model_of_source(config);
  check_model(config);
  const PlanOutline plan = outline_for_plan(training_config(config), request.ranks_per_host);
  const MemoryReport report = report_memory(plan.run);
  fmt::print("{}", request.json ? json_of(report, plan) : text_of(report, plan));
  return 0;
}

}  // namespace lockstep
