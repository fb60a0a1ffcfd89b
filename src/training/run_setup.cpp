#include "training/run_setup.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/human.h"
#include "base/log.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/run_state_json.h"
#include "comm/dry/dry_communicator.h"
#include "data/tokenizer.h"
#include "device/dry/dry_queue.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul.h"
#include "parallel/gradient_reducer.h"
#include "parallel/model_state.h"
#include "training/collectively.h"

namespace lockstep {
namespace {

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

bool wants_validation(const TrainingConfig& config) {
  return config.train.eval_interval > 0 && !config.data.validation.empty();
}

// The vocabulary where the configuration leaves it open: the tokeniser's, else the data's.
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

void check_resume(const TrainingConfig& config, const RunState& state) {
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
  if (config.run.precision != state.precision) {
    log::warn(
        "run.precision was {}, is {}: bits change here", state.precision, config.run.precision);
  }
  if (machine_fingerprint() != state.fingerprint) {
    log::warn("the checkpoint was made with [{}], this is [{}]: bits may change here",
              state.fingerprint,
              machine_fingerprint());
  }
}

int choose_degree(const char* key, long configured, long saved, int real) {
  if (configured > 0 && saved > 0 && configured != saved) {
    throw_request_error(
        "parallel.{} = {} but the checkpoint to go on from has {}: leave it out, "
        "or use that value",
        key,
        configured,
        saved);
  }
  bool changed = false;
  const long wanted = saved > 0 ? saved : configured;
  const int degree = choose_virtual_degree(wanted, real, changed);
  if (changed) {
    log::warn("parallel.{} becomes {} instead of {}, which {} ranks do not fit: bits change here",
              key,
              degree,
              wanted,
              real);
  }
  return degree;
}

VirtualLayout choose_layout(const TrainingConfig& config,
                            const std::optional<CheckpointLocation>& resume,
                            const MeshShape& mesh,
                            int rank) {
  VirtualLayout layout;
  layout.data_ranks = mesh.data;
  layout.data_rank = position_of(mesh, rank).data;
  layout.virtual_data = choose_degree("virtual_data",
                                      config.parallel.virtual_data,
                                      resume ? resume->state.virtual_data : 0,
                                      mesh.data);
  layout.virtual_tensor = choose_degree("virtual_tensor",
                                        config.parallel.virtual_tensor,
                                        resume ? resume->state.virtual_tensor : 0,
                                        mesh.tensor);
  return layout;
}

BatchPlan make_plan(const TrainConfig& train, const Dataset& data) {
  return train.epochs > 0
             ? BatchPlan::for_epochs(data.num_samples(), train.global_batch_size, train.epochs)
             : BatchPlan::for_steps(data.num_samples(), train.global_batch_size, train.steps);
}

// Every size a micro-batch can have: the full one and what remains of `totals`.
std::vector<long> micro_batch_sizes(long micro, const std::set<long>& totals) {
  std::set<long> sizes;
  for (const long total : totals) {
    sizes.insert(std::min(micro, total));
    sizes.insert(total % micro);
  }
  sizes.erase(0);
  return {sizes.begin(), sizes.end()};
}

// Samples of a step, every number there can be.
std::set<long> batch_totals(const TrainConfig& train, long num_samples) {
  std::set<long> totals{train.global_batch_size};
  if (train.epochs > 0) {
    totals = {std::min(train.global_batch_size, num_samples),
              num_samples % train.global_batch_size};
  }
  totals.erase(0);
  return totals;
}

PassMemory measure_run(const TrainConfig& train, const RunSetup& setup, int rank) {
  const long micro = train.micro_batch_size;
  const ModelChunks& chunks = setup.parts->chunks_of(rank);
  const auto measure = [&](PassKind kind, std::vector<long> sizes) {
    return pass_measure(
        setup.model_config, setup.mesh_shape, chunks, setup.dtype, kind, std::move(sizes));
  };
  PassMeasure training = measure(
      PassKind::kTrain, micro_batch_sizes(micro, batch_totals(train, setup.data->num_samples())));
  training.recompute = recompute_from(train.recompute);
  PassMemory memory = measure_passes(chunks, training);
  if (setup.validation) {
    const long all = setup.validation->num_samples();
    const long taken =
        train.eval_batches > 0 ? std::min(all, train.eval_batches * train.global_batch_size) : all;
    memory.merge(
        measure_passes(chunks, measure(PassKind::kEvaluate, micro_batch_sizes(micro, {taken}))));
  }
  return memory;
}

PipelinePlan make_pipeline_plan(const TrainingConfig& config, const RunSetup& setup, int rank) {
  std::set<long> micro_batches;
  for (const long total : batch_totals(config.train, setup.data->num_samples())) {
    micro_batches.insert(num_micro_batches(total, config.train.micro_batch_size));
  }
  return plan_pipeline(config.parallel,
                       setup.mesh_shape,
                       position_of(setup.mesh_shape, rank).pipeline,
                       setup.layout,
                       micro_batches);
}

// The same objects as the run's, on the dry device and communicator.
MemoryPlan plan_memory(const TrainingConfig& config,
                       const RunSetup& setup,
                       const Communicator& group) {
  const int rank = group.rank();
  const ParameterTable& table = setup.parts->table_of(rank);
  DryQueue queue;
  DryCommunicator world(group.rank(), {group.host_of().begin(), group.host_of().end()});
  const Mesh mesh(setup.mesh_shape, world);
  ModelState state(table,
                   setup.dtype,
                   config.optimizer,
                   setup.parts->shards_of(group.rank(), mesh.data()),
                   queue);
  const GradientReducer reducer(
      table, setup.parts->chunk_elements(rank), setup.layout, config.parallel, mesh.data(), queue);
  const SharedGradient shared(table, reducer.owned(), mesh.pipeline(), queue);
  const Stages stages(setup.model_config,
                      *setup.parts,
                      mesh,
                      setup.pass_memory,
                      setup.pipeline,
                      state,
                      stage_options(config, setup),
                      queue);
  const auto root_bytes = static_cast<std::size_t>(table.gradient_size()) * sizeof(float);
  MemoryPlan plan;
  plan.parameters = state.master_bytes();
  plan.compute = state.compute_bytes();
  plan.gradients = reducer.accumulator_bytes();
  plan.optimizer = state.optimizer().bytes();
  plan.activations = stages.stack_bytes();
  plan.workspace = setup.pass_memory.workspace;
  plan.messages = mesh.allocated_bytes() - root_bytes - state.shared_bytes() + stages.link_bytes() +
                  shared.bytes();
  plan.batches =
      BatchReader::planned_bytes(*setup.data, *setup.plan, reader_options(config, setup.layout, 0));
  if (setup.validation) {
    plan.batches += Evaluator(*setup.validation,
                              config.train.micro_batch_size,
                              config.train.eval_batches * config.train.global_batch_size)
                        .buffer_bytes();
  }
  if (setup.parts->is_spread()) {
    plan.staging =
        WholeModel(setup.parts->canonical(), setup.parts->model_shares(), state, world, queue)
            .bytes();
  } else if (group.rank() == 0) {
    plan.staging = CheckpointWriter::staging_bytes(config.checkpoint, state.view(), false);
  }
  return plan;
}

void check_memory_fits(const MemoryPlan& plan, Communicator& group) {
  // Ranks of one host share its memory; each compares its host's sum with what is free there.
  const std::size_t free_bytes = available_host_memory();
  const double mine = static_cast<double>(plan.total());
  std::vector<double> all(static_cast<std::size_t>(group.size()));
  group.all_gather({&mine, 1}, all);
  double host_total = 0;
  const auto& hosts = group.host_of();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (hosts[rank] == hosts[static_cast<std::size_t>(group.rank())]) {
      host_total += all[rank];
    }
  }
  collectively(group, [&] {
    if (free_bytes > 0 && host_total > static_cast<double>(free_bytes)) {
      throw_request_error(
          "the ranks of this host need {} of memory, {} are free (a rank: {}): lower "
          "train.micro_batch_size or the model's sizes, set checkpoint.async = false, or use more "
          "hosts",
          human_bytes(static_cast<std::int64_t>(host_total)),
          human_bytes(static_cast<std::int64_t>(free_bytes)),
          plan.text());
    }
  });
}

}  // namespace

BatchReaderOptions reader_options(const TrainingConfig& config,
                                  const VirtualLayout& layout,
                                  long first_step) {
  return {.micro_batch_size = config.train.micro_batch_size,
          .num_virtual = layout.virtual_data,
          .virtual_begin = layout.first_owned(),
          .virtual_end = layout.first_owned() + layout.owned(),
          .first_step = first_step};
}

std::string machine_fingerprint() {
  return instruction_set_name() + ", " + matmul_implementation_name();
}

Stages::Options stage_options(const TrainingConfig& config, const RunSetup& setup) {
  return {.dtype = setup.dtype,
          .recompute = recompute_from(config.train.recompute),
          .micro_batch_size = config.train.micro_batch_size};
}

RunSetup set_up_run(const TrainingConfig& config, Communicator& group, const Queue& queue) {
  RunSetup setup;
  const auto seed = static_cast<std::uint64_t>(config.run.seed);
  collectively(group, [&] { check_kind(config); });
  setup.resume = find_resume(config, group);
  setup.model_config = config.model;
  if (is_text_model(config.model) && config.model.vocab_size == 0) {
    setup.model_config.vocab_size =
        setup.resume ? setup.resume->state.model.vocab_size : find_vocabulary(config, group);
  }
  setup.dtype = config.run.precision == "bf16" ? DType::kBF16 : DType::kF32;
  collectively(group, [&] {
    if (setup.resume) {
      check_resume(config, setup.resume->state);
    }
    const DatasetShape shape = shape_of(setup.model_config);
    setup.data = make_dataset(config.data, DataPart::kTrain, shape, seed);
    setup.data->check_share(group.rank(), group.size());
    if (wants_validation(config)) {
      setup.validation = make_dataset(config.data, DataPart::kValidation, shape, seed);
      setup.validation->check_share(group.rank(), group.size());
    }
    setup.plan = make_plan(config.train, *setup.data);
    setup.mesh_shape = choose_mesh(config.parallel, setup.model_config, group.size());
    setup.layout = choose_layout(config, setup.resume, setup.mesh_shape, group.rank());
    setup.parts = std::make_unique<ModelParts>(setup.model_config,
                                               setup.dtype,
                                               setup.layout.virtual_tensor,
                                               setup.mesh_shape,
                                               config.parallel);
    setup.pipeline = make_pipeline_plan(config, setup, group.rank());
    setup.pass_memory = measure_run(config.train, setup, group.rank());
    setup.memory = plan_memory(config, setup, group);
  });
  if (queue.kind() == DeviceKind::kCpu) {
    check_memory_fits(setup.memory, group);
  }
  return setup;
}

}  // namespace lockstep
