#include "training/run_setup.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/run_state_json.h"
#include "comm/accelerator.h"
#include "data/tokenizer.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul.h"
#include "training/collectively.h"
#include "training/memory_check.h"

namespace lockstep {
namespace {

void check_kind(const TrainingConfig& config) {
  const bool text = is_text_model(config.model);
  if (text && config.data.kind == "images") {
    throw_request_error(
        "data.kind = \"images\" does not go with model.architecture = \"{}\": "
        "language models train on tokens or synthetic data",
        config.model.architecture);
  }
  if (!text && config.data.kind == "tokens") {
    throw_request_error(
        "data.kind = \"tokens\" does not go with model.architecture = \"mlp\": an "
        "mlp trains on images or synthetic data");
  }
}

// Rank 0 looks, all ranks agree: hosts need not share the folder to see the same.
std::optional<CheckpointLocation> find_resume(const TrainingConfig& config, Communicator& group) {
  std::string found;
  collectively(group, [&] {
    if (group.rank() != 0) {
      return;
    }
    const std::string& resume = config.checkpoint.resume;
    std::optional<CheckpointLocation> location;
    if (resume == "auto") {
      location = find_newest_checkpoint(config.train.output_dir);
    } else if (resume == "never") {
      if (find_newest_checkpoint(config.train.output_dir)) {
        throw_request_error(
            "checkpoint.resume = \"never\", but {} has checkpoints of an earlier "
            "run: choose another train.output_dir, or remove that one",
            config.train.output_dir);
      }
    } else {
      location = locate_checkpoint(resume);
    }
    if (location) {
      found = location->path + "\n" + to_json_text(location->state);
    }
  });
  const std::string text = group.all_gather_text(found).front();
  if (text.empty()) {
    return std::nullopt;
  }
  const std::size_t end_of_path = text.find('\n');
  return CheckpointLocation{text.substr(0, end_of_path),
                            run_state_from_json(text.substr(end_of_path + 1), "state.json")};
}

void check_resume(const TrainingConfig& config, const RunState& state, Queue& queue) {
  const auto refuse = [](const char* key, const auto& now, const auto& then) {
    throw_request_error(
        "{} = {} but the checkpoint to go on from was made with {}: use that value, or another "
        "train.output_dir",
        key,
        now,
        then);
  };
  if (static_cast<std::uint64_t>(config.run.seed) != state.seed) {
    refuse("run.seed", config.run.seed, state.seed);
  }
  if (config.optimizer.name != state.optimizer) {
    refuse("optimizer.name", config.optimizer.name, state.optimizer);
  }
  if (config.parallel.accumulate != state.accumulate) {
    log::warn("parallel.accumulate was {}, is {}: bits change here",
              state.accumulate,
              config.parallel.accumulate);
  }
  if (config.run.precision != state.precision) {
    log::warn(
        "run.precision was {}, is {}: bits change here", state.precision, config.run.precision);
  }
  if (machine_fingerprint(queue) != state.fingerprint) {
    log::warn("the checkpoint was made with [{}], this is [{}]: bits may change here",
              state.fingerprint,
              machine_fingerprint(queue));
  }
}

// The checkpoint's degree, which the configuration may not contradict, else the configuration's.
long wanted_degree(const char* key, long configured, long saved) {
  if (configured > 0 && saved > 0 && configured != saved) {
    throw_request_error(
        "parallel.{} = {} but the checkpoint to go on from has {}: leave it out, "
        "or use that value",
        key,
        configured,
        saved);
  }
  return saved > 0 ? saved : configured;
}

// Everything that memory depends on, but for the data sets.
RunOutline outline_of(const TrainingConfig& config,
                      const RunSetup& setup,
                      Communicator& group,
                      DeviceKind device) {
  RunOutline outline{.config = config,
                     .model = setup.model_config,
                     .dtype = dtype_of(config.run),
                     .device = device,
                     .transport = transport_of(config.parallel, device),
                     .mesh = choose_mesh(config.parallel, setup.model_config, group.size()),
                     .host_of = {group.host_of().begin(), group.host_of().end()}};
  const ParallelConfig& parallel = config.parallel;
  const long saved_data = setup.resume ? setup.resume->state.virtual_data : 0;
  const long saved_tensor = setup.resume ? setup.resume->state.virtual_tensor : 0;
  outline.wanted_virtual_data = wanted_degree("virtual_data", parallel.virtual_data, saved_data);
  outline.wanted_virtual_tensor =
      wanted_degree("virtual_tensor", parallel.virtual_tensor, saved_tensor);
  set_mesh(outline, outline.mesh);
  warn_of_other_degrees(outline);
  return outline;
}

// The parts of the model and this rank's memory, once the data sets are there.
void plan_rank(RunSetup& setup, RunOutline& outline, int rank) {
  outline.data = setup.data->info();
  if (setup.validation) {
    outline.validation = setup.validation->info();
  }
  setup.parts = make_parts(outline);
  RankPlan plan = RunPlanner(outline, *setup.parts).plan(rank);
  setup.layout = plan.layout;
  setup.pipeline = std::move(plan.pipeline);
  setup.one_micro_batch = plan.one_micro_batch;
  setup.pass_memory = std::move(plan.passes);
  setup.memory = plan.memory;
}

}  // namespace

bool is_text_model(const ModelConfig& model) {
  return model.architecture != "mlp";
}

DatasetShape shape_of(const ModelConfig& model) {
  DatasetShape shape;
  if (is_text_model(model)) {
    shape.seq_length = model.seq_length;
    shape.vocab_size = model.vocab_size;
  } else {
    shape.features = model.layer_sizes.front();
    shape.num_classes = model.layer_sizes.back();
  }
  return shape;
}

bool wants_validation(const TrainingConfig& config) {
  return config.train.eval_interval > 0 && !config.data.validation.empty();
}

long find_vocabulary(const TrainingConfig& config, Communicator& group) {
  long vocabulary = 0;
  std::unique_ptr<Dataset> data;
  collectively(group, [&] {
    if (!config.data.tokenizer.empty()) {
      vocabulary = make_tokenizer(config.data.tokenizer)->vocab_size();
      return;
    }
    if (config.data.kind == "synthetic") {
      throw_request_error("model.vocab_size = 0: synthetic data has no vocabulary; set it");
    }
    const auto seed = static_cast<std::uint64_t>(config.run.seed);
    data = make_dataset(config.data, DataPart::kTrain, shape_of(config.model), seed);
    vocabulary = data->largest_target(group.rank(), group.size()) + 1;
  });
  const double mine = static_cast<double>(vocabulary);
  std::vector<double> all(static_cast<std::size_t>(group.size()));
  group.all_gather({&mine, 1}, all);
  return static_cast<long>(*std::max_element(all.begin(), all.end()));
}

std::string machine_fingerprint(Queue& queue) {
  return queue.kind() == DeviceKind::kCuda
             ? accelerator()->fingerprint(queue)
             : instruction_set_name() + ", " + matmul_implementation_name();
}

RunSetup set_up_run(const TrainingConfig& config, Communicator& group, Queue& queue) {
  RunSetup setup;
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  collectively(group, [&] { check_kind(config); });
  setup.resume = find_resume(config, group);
  setup.model_config = config.model;
  if (is_text_model(config.model) && config.model.vocab_size == 0) {
    setup.model_config.vocab_size =
        setup.resume ? setup.resume->state.model.vocab_size : find_vocabulary(config, group);
  }
  setup.dtype = dtype_of(config.run);
  RunOutline outline;
  collectively(group, [&] {
    if (setup.resume) {
      check_resume(config, setup.resume->state, queue);
    }
    const DatasetShape shape = shape_of(setup.model_config);
    setup.data = make_dataset(config.data, DataPart::kTrain, shape, seed);
    setup.data->check_share(group.rank(), group.size());
    if (wants_validation(config)) {
      setup.validation = make_dataset(config.data, DataPart::kValidation, shape, seed);
      setup.validation->check_share(group.rank(), group.size());
    }
    setup.plan = make_batch_plan(config.train, setup.data->num_samples());
    outline = outline_of(config, setup, group, queue.planned_kind());
    setup.mesh_shape = outline.mesh;
    plan_rank(setup, outline, group.rank());
  });
  check_memory_fits(outline, setup.memory, group, queue);
  return setup;
}

}  // namespace lockstep
