#include "training/stages.h"

#include "nn/transformer_sizes.h"

namespace lockstep {
namespace {

// Rows of a sample that norms of this rank work on.
long rows_per_sample(const ModelConfig& model, const ModelChunks& chunks) {
  return chunks.front()->parameters().split().own_tokens(model.seq_length).size();
}

int ranks_that_share_heads(const ModelConfig& model, const ModelChunks& chunks) {
  const TensorSplit& split = chunks.front()->parameters().split();
  return model.architecture == "mlp"
             ? 1
             : head_split_of(model, split.num_blocks).ranks_sharing(split.ranks);
}

std::vector<std::vector<std::vector<int>>> weight_orders(const ModelChunks& chunks) {
  std::vector<std::vector<std::vector<int>>> orders;
  for (const auto& chunk : chunks) {
    orders.emplace_back();
    for (const auto kind : {Model::PassKind::kForward,
                            Model::PassKind::kBackward,
                            Model::PassKind::kEvaluate,
                            Model::PassKind::kBackwardInput,
                            Model::PassKind::kBackwardWeight}) {
      orders.back().push_back(chunk->weight_order(kind));
    }
  }
  return orders;
}

std::vector<Model*> pointers_to(const ModelChunks& chunks) {
  std::vector<Model*> models;
  for (const auto& chunk : chunks) {
    models.push_back(chunk.get());
  }
  return models;
}

}  // namespace

Stages::Stages(const ModelConfig& model,
               const ModelParts& parts,
               Mesh& mesh,
               const PassMemory& memory,
               const PipelinePlan& pipeline,
               const ModelState& state,
               const Options& options,
               Queue& queue) {
  const ModelChunks& chunks = parts.chunks_of(mesh.world().rank());
  for (const auto& chunk : chunks) {
    chunk->prepare(queue);
    table_bytes_ += chunk->table_bytes();
  }
  if (mesh.shape().tensor > 1) {
    const int sharing = ranks_that_share_heads(model, chunks);
    tensor_.emplace(
        mesh.tensor(), sharing > 1 ? &mesh.add_sharing_group(sharing) : nullptr, memory.tensor);
  }
  const long rows = rows_per_sample(model, chunks);
  if (mesh.shape().pipeline > 1) {
    links_.emplace(mesh.pipeline(),
                   PipelineLinks::Sizes{.rows = rows * options.micro_batch_size,
                                        .cols = model.hidden_size,
                                        .dtype = options.dtype,
                                        .in_flight = pipeline.in_flight,
                                        .chunks = static_cast<int>(chunks.size())},
                   queue);
  }
  if (parts.zero_stage() == 3) {
    const int rank = mesh.world().rank();
    weights_.emplace(parts.table_of(rank),
                     options.dtype,
                     parts.buckets_of(rank),
                     weight_orders(chunks),
                     mesh.add_weights_group(),
                     state,
                     queue);
  }
  runner_.emplace(pointers_to(chunks),
                  state,
                  memory.stacks,
                  StageRunner::Options{.tensor = tensor_ ? &*tensor_ : nullptr,
                                       .recompute = options.recompute,
                                       .links = links_ ? &*links_ : nullptr,
                                       .rows_per_sample = rows,
                                       .weights = weights_ ? &*weights_ : nullptr,
                                       .inputs = options.inputs,
                                       .micro_batch_size = options.micro_batch_size,
                                       .seed = options.seed},
                  queue);
}

PassMeasure pass_measure(const ModelConfig& model,
                         const MeshShape& mesh,
                         const ModelChunks& chunks,
                         DeviceKind device,
                         DType dtype,
                         PassUse kind,
                         std::vector<long> batch_sizes) {
  PassMeasure measure{
      .device = device, .dtype = dtype, .kind = kind, .batch_sizes = std::move(batch_sizes)};
  measure.sharing_ranks = ranks_that_share_heads(model, chunks);
  if (mesh.pipeline > 1) {
    measure.boundary_cols = model.hidden_size;
    measure.boundary_rows = rows_per_sample(model, chunks);
  }
  return measure;
}

}  // namespace lockstep
