// `lockstep train` on a device that sleeps for as long as its kernels are predicted to take. NOTHING IS TRAINED:
// weights, losses and gradients are zeros, and no checkpoint is written. Everything else is the real program: set-up,
// schedule, passes, messages, traces. For scripts/bench/pipeline_schedules and tests/paced/schedules.py.
//
// Usage, under mpirun: paced_training OPERATIONS_PER_SECOND BYTES_PER_SECOND train [--KEY VALUE ...]
// with a rank for every stage of parallel.pipeline, log.trace, and a new train.output_dir, which gets schedule.json
// (paced/pass_times.h) beside the traces.
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "cli/rank_resources.h"
#include "cli/request.h"
#include "cli/validate.h"
#include "comm/mpi/runtime.h"
#include "data/sample_order.h"
#include "formats/append_file.h"
#include "paced/paced_queue.h"
#include "paced/pass_times.h"
#include "training/collectively.h"
#include "training/trainer.h"

namespace lockstep {
namespace {

double positive_number(const char* text) {
  double value = 0;
  const char* const end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, value);
  if (result.ec != std::errc{} || result.ptr != end || !(value > 0)) {
    throw_request_error("\"{}\": expected a number above 0", text);
  }
  return value;
}

void check(const Configuration& config, int ranks) {
  if (config.parallel.pipeline < 2 || config.parallel.pipeline != ranks) {
    throw_request_error("parallel.pipeline = {}: expected a stage for each of the {} ranks",
                        config.parallel.pipeline,
                        ranks);
  }
  if (config.log.trace.empty() || config.train.steps == 0) {
    throw_request_error("expected log.trace and train.steps");
  }
  if (std::filesystem::exists(config.train.output_dir)) {
    throw_request_error(
        "train.output_dir: {} is there; expected a new folder, so that nothing of it is taken for "
        "a training",
        config.train.output_dir);
  }
}

int run(int argc, char** argv, MpiRuntime& runtime) {
  if (argc < 4) {
    throw_request_error(
        "usage: paced_training OPERATIONS_PER_SECOND BYTES_PER_SECOND train [--KEY VALUE ...]");
  }
  const Pace pace{positive_number(argv[1]), positive_number(argv[2])};
  const Request request = parse_request(argc - 2, argv + 2);
  if (request.kind != Request::Kind::kCommand || request.command != Command::kTrain) {
    throw_request_error("expected the command train");
  }
  const RankResources rank = start_rank(request.config, runtime);
  const Configuration& config = request.config;
  collectively(*rank.world, [&] {
    check_model(config);
    check(config, rank.world->size());
  });
  if (rank.world->rank() == 0) {
    log::warn("kernels sleep: nothing is trained, losses mean nothing, no checkpoint is written");
  }
  PacedQueue queue(pace);
  train(training_config(config), *rank.world, queue);

  const PipelineSchedule schedule = make_schedule(
      schedule_kind(config.parallel.schedule),
      config.parallel.pipeline,
      config.parallel.virtual_stages,
      num_micro_batches(config.train.global_batch_size, config.train.micro_batch_size));
  const std::string text = describe_passes(
      schedule, queue.predicted_seconds() / static_cast<double>(config.train.steps), *rank.world);
  if (rank.world->rank() == 0) {
    replace_file(config.train.output_dir + "/schedule.json", text);
  }
  return 0;
}

int answer(int argc, char** argv) {
  log::start(0, 1, "info");
  std::optional<MpiRuntime> runtime;
  try {
    runtime.emplace(argc, argv);
    log::start(runtime->global_rank(), runtime->global_size(), "info");
    return run(argc, argv, *runtime);
  } catch (const RequestError& refusal) {
    if (!runtime || runtime->global_rank() == 0) {
      log::error("{}", refusal.what());
    }
    return 2;
  } catch (const std::exception& failure) {
    log::error("{}", failure.what());
    if (runtime && runtime->has_mpi()) {
      runtime->abort(3);
    }
    return 3;
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::answer(argc, argv);
}
