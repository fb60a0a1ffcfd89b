#include "planning/plan_outline.h"

#include <algorithm>

#include "base/error.h"
#include "comm/local/local_communicator.h"
#include "training/run_setup.h"

namespace lockstep {
namespace {

constexpr long kMostRanks = 1L << 16U;

void fill_in_vocabulary(const TrainingConfig& config, PlanOutline& outline) {
  ModelConfig& model = outline.run.model;
  if (!is_text_model(model) || model.vocab_size > 0) {
    return;
  }
  if (config.data.tokenizer.empty() && config.data.train.empty()) {
    throw_request_error(
        "model.vocab_size = 0: set it, or data.tokenizer or data.train, to take it from");
  }
  LocalCommunicator alone;
  try {
    model.vocab_size = find_vocabulary(config, alone);
  } catch (const RequestError& failure) {
    throw_request_error(
        "model.vocab_size = 0, and it cannot be found out: {}; set model.vocab_size",
        failure.what());
  }
  outline.assumptions.push_back(
      fmt::format("model.vocab_size = {}, from {}",
                  model.vocab_size,
                  config.data.tokenizer.empty() ? "data.train" : "data.tokenizer"));
}

MeshShape mesh_of(const ParallelConfig& parallel, const ModelConfig& model) {
  const long data = std::max(1L, parallel.data);
  const auto too_many = [&] {
    throw_request_error(
        "parallel.data = {}, parallel.pipeline = {}, parallel.tensor = {}: plan takes at most {} "
        "ranks",
        parallel.data,
        parallel.pipeline,
        parallel.tensor,
        kMostRanks);
  };
  long ranks = 1;
  for (const long degree : {data, parallel.pipeline, parallel.tensor}) {
    if (degree > kMostRanks / ranks) {
      too_many();
    }
    ranks *= degree;
  }
  return choose_mesh(parallel, model, static_cast<int>(ranks));
}

// Synthetic data is known; of other data it is taken that there is enough for whole batches.
DatasetInfo info_of(const TrainingConfig& config, const ModelConfig& model, long whole) {
  const DatasetShape shape = shape_of(model);
  const bool text = is_text_model(model);
  return {.kind = text ? SampleKind::kTokens : SampleKind::kImages,
          .num_samples = config.data.kind == "synthetic" ? shape.num_synthetic_samples : whole,
          .inputs_per_sample = text ? model.seq_length : shape.features,
          .targets_per_sample = text ? model.seq_length : 1,
          .num_classes = text ? model.vocab_size : shape.num_classes,
          .ignore_token = config.data.ignore_token};
}

void add_data(const TrainingConfig& config, PlanOutline& outline) {
  const TrainConfig& train = config.train;
  const bool known = config.data.kind == "synthetic";
  outline.run.data = info_of(config, outline.run.model, train.global_batch_size);
  if (train.epochs > 0 && !known) {
    outline.assumptions.emplace_back(
        "train.epochs: every batch is taken as whole; the last one of an epoch may be smaller");
  }
  if (!wants_validation(config)) {
    return;
  }
  const long evaluated = std::max(1L, train.eval_batches) * train.global_batch_size;
  const long whole = round_up(evaluated, train.micro_batch_size);
  outline.run.validation = info_of(config, outline.run.model, whole);
  if (!known) {
    outline.assumptions.emplace_back(
        "data.validation: taken to have whole micro-batches of samples for an evaluation");
  }
}

}  // namespace

PlanOutline outline_for_plan(const TrainingConfig& config, long ranks_per_host) {
  PlanOutline outline;
  RunOutline& run = outline.run;
  run.config = config;
  run.model = config.model;
  run.dtype = dtype_of(config.run);
  run.device = config.run.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  run.transport = transport_of(config.parallel, run.device);
  fill_in_vocabulary(config, outline);
  run.wanted_virtual_data = config.parallel.virtual_data;
  run.wanted_virtual_tensor = config.parallel.virtual_tensor;
  set_mesh(run, mesh_of(config.parallel, run.model));
  warn_of_other_degrees(run);
  if (config.parallel.data == 0) {
    outline.assumptions.emplace_back("parallel.data = 0, taken as 1");
  }
  for (long rank = 0; rank < run.mesh.num_ranks(); ++rank) {
    run.host_of.push_back(ranks_per_host > 0 ? rank / ranks_per_host : 0);
  }
  add_data(config, outline);
  return outline;
}

}  // namespace lockstep
