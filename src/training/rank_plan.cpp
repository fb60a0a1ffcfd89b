#include "training/rank_plan.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "checkpoint/checkpoint_writer.h"
#include "comm/dry/dry_communicator.h"
#include "device/dry/dry_queue.h"
#include "parallel/gradient_reducer.h"
#include "parallel/mesh.h"
#include "parallel/model_state.h"
#include "parallel/shared_gradient.h"
#include "parallel/step_exchange.h"
#include "parallel/step_executor.h"
#include "parallel/whole_model.h"
#include "training/evaluator.h"

namespace lockstep {
namespace {

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

// Samples of an evaluation at most; 0: all.
long max_evaluated(const TrainConfig& train) {
  return train.eval_batches * train.global_batch_size;
}

}  // namespace

DType dtype_of(const RunConfig& run) {
  return run.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

Transport transport_of(const ParallelConfig& parallel, DeviceKind device) {
  if (device == DeviceKind::kCpu) {
    return Transport::kHost;
  }
  return parallel.backend == "mpi" ? Transport::kStaged : Transport::kNccl;
}

void set_mesh(RunOutline& outline, const MeshShape& mesh) {
  bool changed = false;
  outline.mesh = mesh;
  outline.virtual_data = choose_virtual_degree(outline.wanted_virtual_data, mesh.data, changed);
  outline.virtual_tensor =
      choose_virtual_degree(outline.wanted_virtual_tensor, mesh.tensor, changed);
}

void warn_of_other_degrees(const RunOutline& outline) {
  const auto warn = [](const char* key, int degree, long wanted, int real) {
    if (wanted > 0 && degree != wanted) {
      log::warn("parallel.{} becomes {} instead of {}, which {} ranks do not fit: bits change here",
                key,
                degree,
                wanted,
                real);
    }
  };
  warn("virtual_data", outline.virtual_data, outline.wanted_virtual_data, outline.mesh.data);
  warn(
      "virtual_tensor", outline.virtual_tensor, outline.wanted_virtual_tensor, outline.mesh.tensor);
}

std::unique_ptr<ModelParts> make_parts(const RunOutline& outline) {
  return std::make_unique<ModelParts>(
      outline.model, outline.dtype, outline.virtual_tensor, outline.mesh, outline.config.parallel);
}

RunPlanner::RunPlanner(const RunOutline& outline, const ModelParts& parts)
    : outline_(&outline),
      parts_(&parts),
      totals_(batch_totals(outline.config.train, outline.data.num_samples)) {}

RankPlan RunPlanner::plan(int rank) {
  RankPlan plan;
  plan.layout = layout_of(rank);
  plan.one_micro_batch = has_one_micro_batch_each(plan.layout, micro_batch_totals());
  plan.pipeline = make_pipeline(rank, plan.layout);
  const int place = rank % (outline_->mesh.pipeline * outline_->mesh.tensor);
  const auto known = passes_.find(place);
  plan.passes =
      known != passes_.end() ? known->second : passes_.emplace(place, measure(rank)).first->second;
  plan.memory = memory_of(rank, plan);
  return plan;
}

VirtualLayout RunPlanner::layout_of(int rank) const {
  return {.virtual_data = outline_->virtual_data,
          .virtual_tensor = outline_->virtual_tensor,
          .data_ranks = outline_->mesh.data,
          .data_rank = position_of(outline_->mesh, rank).data};
}

PassMemory RunPlanner::measure(int rank) const {
  const TrainConfig& train = outline_->config.train;
  const long micro = train.micro_batch_size;
  const ModelChunks& chunks = parts_->chunks_of(rank);
  const auto describe = [&](PassUse kind, std::vector<long> sizes) {
    return pass_measure(outline_->model,
                        outline_->mesh,
                        chunks,
                        outline_->device,
                        outline_->dtype,
                        kind,
                        std::move(sizes));
  };
  PassMeasure training = describe(PassUse::kTrain, micro_batch_sizes(micro, totals_));
  training.recompute = recompute_from(train.recompute);
  training.splits_backward = splits_backward(outline_->config.parallel, outline_->mesh);
  PassMemory memory = measure_passes(chunks, training);
  if (outline_->validation) {
    const long all = outline_->validation->num_samples;
    const long taken = train.eval_batches > 0 ? std::min(all, max_evaluated(train)) : all;
    memory.merge(
        measure_passes(chunks, describe(PassUse::kEvaluate, micro_batch_sizes(micro, {taken}))));
  }
  return memory;
}

std::set<long> RunPlanner::micro_batch_totals() const {
  std::set<long> micro_batches;
  for (const long total : totals_) {
    micro_batches.insert(num_micro_batches(total, outline_->config.train.micro_batch_size));
  }
  return micro_batches;
}

PipelinePlan RunPlanner::make_pipeline(int rank, const VirtualLayout& layout) const {
  return plan_pipeline(outline_->config.parallel,
                       outline_->mesh,
                       position_of(outline_->mesh, rank).pipeline,
                       layout,
                       micro_batch_totals());
}

MemoryPlan RunPlanner::memory_of(int rank, const RankPlan& rank_plan) const {
  const TrainingConfig& config = outline_->config;
  const ParameterTable& table = parts_->table_of(rank);
  DryQueue queue(outline_->device);
  DryCommunicator world(rank, outline_->host_of, outline_->transport);
  Mesh mesh(outline_->mesh, world);
  const GradientReducer reducer(table,
                                parts_->chunk_elements(rank),
                                rank_plan.layout,
                                config.parallel,
                                rank_plan.one_micro_batch,
                                mesh.data(),
                                queue);
  ModelState state(table,
                   outline_->dtype,
                   config.optimizer,
                   parts_->shards_of(rank, mesh.data(), reducer.is_packed()),
                   queue);
  const SharedGradient shared(table, reducer.owned(), reducer.pieces(), mesh.pipeline(), queue);
  const Stages stages(outline_->model,
                      *parts_,
                      mesh,
                      rank_plan.passes,
                      rank_plan.pipeline,
                      state,
                      stage_options(config, outline_->dtype, outline_->data),
                      queue);
  MemoryPlan plan;
  plan.parameters = state.master_bytes();
  plan.compute = state.compute_bytes() + stages.weight_bytes();
  plan.gradients = reducer.accumulator_bytes();
  plan.optimizer = state.optimizer().bytes();
  plan.activations = stages.stack_bytes();
  plan.workspace = rank_plan.passes.workspace;
  plan.messages = mesh.allocated_bytes() - reducer.shared_bytes() - state.shared_bytes() -
                  stages.weight_bytes() + stages.link_bytes() + shared.bytes();
  plan.tables = stages.table_bytes();
  plan.results = stages.result_bytes() + StepExchange::planned_bytes(table) +
                 StepExecutor::loss_bytes(rank_plan.pipeline.schedules);
  plan.batches =
      BatchReader::planned_bytes(outline_->data,
                                 make_batch_plan(config.train, outline_->data.num_samples),
                                 reader_options(config, rank_plan.layout, 0));
  if (outline_->validation) {
    plan.batches += Evaluator::planned_bytes(
        *outline_->validation, config.train.micro_batch_size, max_evaluated(config.train));
  }
  if (needs_whole_model(*parts_, outline_->device)) {
    // Its memory does not depend on who has which share.
    const bool keeps_copy = config.checkpoint.async_write;
    WholeModel whole(parts_->canonical(), {}, state, world, keeps_copy, queue);
    plan.staging = whole.bytes();
    if (rank == 0) {
      plan.staging += CheckpointWriter::staging_bytes(config.checkpoint, whole.view(), true);
    }
  } else if (rank == 0) {
    plan.staging = CheckpointWriter::staging_bytes(config.checkpoint, state.view(), false);
  }
  return plan;
}

bool needs_whole_model(const ModelParts& parts, DeviceKind device) {
  return parts.is_spread() || device != DeviceKind::kCpu;
}

BatchPlan make_batch_plan(const TrainConfig& train, long num_samples) {
  return train.epochs > 0
             ? BatchPlan::for_epochs(num_samples, train.global_batch_size, train.epochs)
             : BatchPlan::for_steps(num_samples, train.global_batch_size, train.steps);
}

BatchReaderOptions reader_options(const TrainingConfig& config,
                                  const VirtualLayout& layout,
                                  long first_step) {
  return {.micro_batch_size = config.train.micro_batch_size,
          .num_virtual = layout.virtual_data,
          .virtual_begin = layout.first_owned(),
          .virtual_end = layout.first_owned() + layout.owned(),
          .first_step = first_step};
}

StageRunner::InputBytes input_bytes_of(const DatasetInfo& data, long samples) {
  const bool is_text = data.kind == SampleKind::kTokens;
  return {.inputs = bytes_of(samples * data.inputs_per_sample, DType::kF32),
          .targets = bytes_of(samples * data.targets_per_sample, DType::kI32),
          .predictions = is_text ? 0 : bytes_of(samples, DType::kI32)};
}

Stages::Options stage_options(const TrainingConfig& config, DType dtype, const DatasetInfo& data) {
  const long micro = config.train.micro_batch_size;
  return {.dtype = dtype,
          .recompute = recompute_from(config.train.recompute),
          .micro_batch_size = micro,
          .inputs = input_bytes_of(data, micro),
          .seed = static_cast<std::uint64_t>(config.run.seed)};
}

}  // namespace lockstep
