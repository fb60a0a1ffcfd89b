#include <cmath>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/model_source.h"
#include "cli/commands.h"
#include "cli/model_source.h"
#include "cli/rank_resources.h"
#include "data/image_dataset.h"
#include "data/token_dataset.h"
#include "data/window_dataset.h"
#include "parallel/model_parts.h"
#include "training/collectively.h"
#include "training/evaluator.h"
#include "training/memory_plan.h"
#include "training/rank_plan.h"
#include "training/stages.h"

namespace lockstep {
namespace {

std::unique_ptr<Dataset> open_data(const Configuration& config) {
  const std::string& source =
      config.evaluate.data.empty() ? config.data.validation : config.evaluate.data;
  if (source.empty()) {
    throw_request_error(
        "evaluate.data is not set: give a token file, or for an mlp a folder with "
        "IDX files");
  }
  if (source.ends_with(".jsonl")) {
    throw_request_error("evaluate.data = \"{}\": multiple choice is not yet available", source);
  }
  const ModelConfig& model = config.model;
  if (model.architecture == "mlp") {
    DatasetShape shape;
    shape.features = model.layer_sizes.front();
    shape.num_classes = model.layer_sizes.back();
    return std::make_unique<ImageDataset>(source, "t10k", shape, config.data.ignore_token);
  }
  const long stride = config.evaluate.stride == 0 ? model.seq_length : config.evaluate.stride;
  return std::make_unique<WindowDataset>(
      find_shards(source), model.seq_length, stride, model.vocab_size, config.data.ignore_token);
}

// Rank 0 reads, every rank gets its part.
void load_on_all(const Configuration& config,
                 const ModelParts& parts,
                 ModelState& state,
                 Communicator& world,
                 Queue& queue) {
  std::optional<WholeModel> whole;
  if (needs_whole_model(parts, queue.planned_kind())) {
    whole.emplace(parts.canonical(), parts.model_shares(), state, world.host(), false, queue);
  }
  collectively(world, [&] {
    on_whole_model(whole ? &*whole : nullptr, state, world.rank(), [&](const ModelView& model) {
      load_source_weights(config.model.init_from, config.model, model);
    });
  });
  if (!whole) {
    world.broadcast(state.master(), state.master_bytes(), 0);
  }
  state.refresh_compute_copy();
}

void print_result(const Evaluation& evaluation, bool json) {
  const bool images = !std::isnan(evaluation.accuracy);
  if (json) {
    nlohmann::json object{{"loss", evaluation.loss},
                          {"perplexity", std::exp(evaluation.loss)},
                          {"targets", evaluation.targets}};
    if (images) {
      object["accuracy"] = evaluation.accuracy;
      object["confusion"] = evaluation.confusion;
    }
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("targets     {}\nloss        {:.6f}\nperplexity  {:.4f}\n",
             evaluation.targets,
             evaluation.loss,
             std::exp(evaluation.loss));
  if (images) {
    fmt::print("accuracy    {:.2f} %\n", 100 * evaluation.accuracy);
    fmt::print("confusion   (a row a label, a column a prediction)\n");
    for (const auto& row : evaluation.confusion) {
      fmt::print("  {:>6}\n", fmt::join(row, " "));
    }
  }
}

}  // namespace

int run_evaluate(const Request& request, MpiRuntime& runtime) {
  const RankResources rank = start_rank(request.config, runtime);
  Configuration config = request.config;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<ModelParts> parts;
  MeshShape shape;
  PipelinePlan pipeline;
  const DType dtype = config.run.precision == "bf16" ? DType::kBF16 : DType::kF32;
  VirtualLayout layout;
  collectively(*rank.world, [&] {
    if (config.model.init_from.empty()) {
      throw_request_error(
          "model.init_from is not set: give a checkpoint, a run's folder or a "
          "Hugging Face folder");
    }
    adopt_model_of_source(config);
    data = open_data(config);
    data->check_share(rank.world->rank(), rank.world->size());
    shape = choose_mesh(config.parallel, config.model, rank.world->size());
    const MeshPosition position = position_of(shape, rank.world->rank());
    layout.data_ranks = shape.data;
    layout.data_rank = position.data;
    bool changed = false;
    layout.virtual_tensor =
        choose_virtual_degree(config.parallel.virtual_tensor, shape.tensor, changed);
    layout.virtual_data =
        choose_virtual_degree(config.parallel.virtual_data, layout.data_ranks, changed);
    config.parallel.zero_stage = 0;  // there is no optimiser
    parts = std::make_unique<ModelParts>(
        config.model, dtype, layout.virtual_tensor, shape, config.parallel);
    // One micro-batch after the other: the plan of a step with one.
    pipeline = plan_pipeline(config.parallel, shape, position.pipeline, layout, {1});
  });
  Queue& queue = *rank.queue;
  Mesh mesh(shape, *rank.world);
  const int own_rank = rank.world->rank();
  ModelState state(parts->table_of(own_rank), dtype, {.name = "sgd"}, queue);
  load_on_all(config, *parts, state, *rank.world, queue);
  const long micro = std::min(config.train.micro_batch_size, data->num_samples());
  const std::vector<long> sizes{micro, std::max(1L, data->num_samples() % micro)};
  const ModelChunks& chunks = parts->chunks_of(own_rank);
  const PassMemory memory = measure_passes(
      chunks,
      pass_measure(
          config.model, shape, chunks, queue.planned_kind(), dtype, PassUse::kEvaluate, sizes));
  Stages stages(
      config.model,
      *parts,
      mesh,
      memory,
      pipeline,
      state,
      {.dtype = dtype, .micro_batch_size = micro, .inputs = input_bytes_of(data->info(), micro)},
      queue);
  Evaluator evaluator(*data, micro, 0);
  const Evaluation evaluation = evaluator.run(stages.runner(), layout, mesh);
  if (rank.world->rank() == 0) {
    print_result(evaluation, config.evaluate.json);
  }
  return 0;
}

}  // namespace lockstep
