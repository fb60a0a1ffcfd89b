#include "parallel/model_parts.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/reduce.h"
#include "nn/transformer_sizes.h"
#include "parallel/buckets.h"
#include "parallel/layer_split.h"
#include "parallel/virtual_layout.h"

namespace lockstep {
namespace {

bool can_pipeline(const ParallelConfig& parallel, const ModelConfig& model, int stages) {
  if (stages == 1) {
    return true;
  }
  return model.architecture != "mlp" && stages * parallel.virtual_stages <= model.num_layers;
}

ModelChunks whole_model(const ModelConfig& model, DType dtype, const TensorSplit& split) {
  ModelChunks chunks;
  chunks.push_back(make_model(model, dtype, split));
  return chunks;
}

bool is_legal(const ParallelConfig& parallel, const ModelConfig& model, const MeshShape& mesh) {
  bool changed = false;
  const int blocks = choose_virtual_degree(parallel.virtual_tensor, mesh.tensor, changed);
  return can_split(model, mesh.tensor, blocks) && can_pipeline(parallel, model, mesh.pipeline) &&
         (!parallel.sequence || model.seq_length >= mesh.tensor);
}

// "8 x 1 x 1, 4 x 1 x 2": data x pipeline x tensor.
std::string possible_meshes(const ParallelConfig& parallel, const ModelConfig& model, int ranks) {
  std::vector<std::string> meshes;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    for (int pipeline = 1; tensor * pipeline <= ranks; ++pipeline) {
      const MeshShape mesh{ranks / (tensor * pipeline), pipeline, tensor};
      if (mesh.num_ranks() == ranks && is_legal(parallel, model, mesh)) {
        meshes.push_back(fmt::format("{} x {} x {}", mesh.data, mesh.pipeline, mesh.tensor));
      }
    }
  }
  constexpr std::size_t kMostShown = 24;
  const bool all = meshes.size() <= kMostShown;
  meshes.resize(std::min(meshes.size(), kMostShown));
  return fmt::format("{}{}", fmt::join(meshes, ", "), all ? "" : ", ...");
}

}  // namespace

bool can_split(const ModelConfig& model, int tensor, int virtual_tensor) {
  if (tensor <= 1) {
    return tensor == 1;
  }
  const auto all_have_some = [](long size, long parts) {
    return (parts - 1) * ceil_div(size, parts) < size;
  };
  if (model.architecture == "mlp") {
    // Pairs of layers are cut along what lies between them.
    bool any = false;
    for (std::size_t i = 1; i + 1 < model.layer_sizes.size(); i += 2) {
      any = true;
      if (!all_have_some(model.layer_sizes[i], tensor)) {
        return false;
      }
    }
    return any;
  }
  const HeadSplit heads = head_split_of(model, virtual_tensor);
  if (!heads.fits(tensor) || !all_have_some(model.vocab_size, tensor)) {
    return false;
  }
  const long sharing = heads.ranks_sharing(tensor);
  if (sharing == 1) {
    return all_have_some(heads.kv_heads, tensor);
  }
  return all_have_some(heads.heads / heads.kv_heads, sharing) &&
         all_have_some(heads.head_dim, sharing);
}

MeshShape choose_mesh(const ParallelConfig& parallel, const ModelConfig& model, int num_ranks) {
  const long part = parallel.tensor * parallel.pipeline;
  const long data = parallel.data > 0 ? parallel.data : num_ranks / std::max(1L, part);
  const MeshShape mesh{static_cast<int>(data),
                       static_cast<int>(parallel.pipeline),
                       static_cast<int>(parallel.tensor)};
  if (data * part != num_ranks) {
    throw_request_error(
        "parallel.data = {}, parallel.pipeline = {}, parallel.tensor = {} do not make {} rank{}; "
        "possible (data x pipeline x tensor): {}",
        parallel.data,
        parallel.pipeline,
        parallel.tensor,
        num_ranks,
        num_ranks == 1 ? "" : "s",
        possible_meshes(parallel, model, num_ranks));
  }
  if (!is_legal(parallel, model, mesh)) {
    throw_request_error(
        "parallel.tensor = {}, parallel.pipeline = {}, parallel.virtual_stages = {}: not every "
        "rank would have a part of this model (key and value heads or, where ranks share one, its "
        "query heads; vocabulary, tokens of a split sequence, hidden layers of an mlp; a layer for "
        "every stage); possible with {} ranks (data x pipeline x tensor): {}",
        parallel.tensor,
        parallel.pipeline,
        parallel.virtual_stages,
        num_ranks,
        possible_meshes(parallel, model, num_ranks));
  }
  return mesh;
}

ModelParts::ModelParts(const ModelConfig& model,
                       DType dtype,
                       int virtual_tensor,
                       const MeshShape& mesh,
                       const ParallelConfig& parallel)
    : mesh_(mesh),
      zero_stage_(mesh.data > 1 ? static_cast<int>(parallel.zero_stage) : 0),
      bucket_bytes_(parallel.bucket_mib << 20U),
      whole_(make_model(model, dtype, virtual_tensor)),
      canonical_(make_model(model, dtype, 1)) {
  const auto chunks = static_cast<int>(mesh.pipeline > 1 ? parallel.virtual_stages : 1);
  std::vector<ModelPart> stages;
  if (mesh.pipeline > 1) {
    stages = split_model(model, mesh.pipeline * chunks);
  }
  const auto depth = static_cast<std::size_t>(mesh.pipeline);
  chunks_.reserve(depth * static_cast<std::size_t>(mesh.tensor));
  for (std::size_t pipeline = 0; pipeline < depth; ++pipeline) {
    std::vector<ModelPart> own;  // every depth-th stage
    for (std::size_t stage = pipeline; stage < stages.size(); stage += depth) {
      own.push_back(stages[stage]);
    }
    for (int tensor = 0; tensor < mesh.tensor; ++tensor) {
      const TensorSplit split(virtual_tensor, mesh.tensor, tensor, parallel.sequence);
      chunks_.push_back(own.empty() ? whole_model(model, dtype, split)
                                    : make_model_parts(model, dtype, split, own));
    }
  }
}

const ModelChunks& ModelParts::chunks_of(int rank) const {
  const MeshPosition at = position_of(mesh_, rank);
  const auto row = static_cast<std::size_t>(at.pipeline) * static_cast<std::size_t>(mesh_.tensor);
  return chunks_[row + static_cast<std::size_t>(at.tensor)];
}

std::vector<IndexRange> ModelParts::chunk_elements(int rank) const {
  std::vector<IndexRange> elements;
  for (const auto& chunk : chunks_of(rank)) {
    elements.push_back(chunk->own_elements());
  }
  return elements;
}

std::vector<IndexRange> ModelParts::buckets_of(int rank) const {
  return make_buckets(table_of(rank), chunk_elements(rank), bucket_bytes_, zero_stage_ > 1);
}

bool ModelParts::is_spread() const {
  return mesh_.tensor > 1 || mesh_.pipeline > 1 || zero_stage_ > 0;
}

std::vector<IndexRange> ModelParts::owned_by(int rank) const {
  const ParameterTable& table = table_of(rank);
  if (zero_stage_ == 0) {
    return {{0, table.flat_size()}};
  }
  return owned_ranges(table, buckets_of(rank), mesh_.data, position_of(mesh_, rank).data);
}

ShardPlan ModelParts::shards_of(int rank, Communicator& data_group, bool packed_gradients) const {
  if (zero_stage_ == 0) {
    return {};
  }
  return {.stage = zero_stage_,
          .packed_gradients = packed_gradients,
          .data_group = &data_group,
          .buckets = buckets_of(rank),
          .owned = owned_by(rank)};
}

std::vector<StepExchange::Share> ModelParts::norm_shares() const {
  std::vector<StepExchange::Share> shares;
  for (int rank = 0; rank < mesh_.num_ranks(); ++rank) {
    const MeshPosition at = position_of(mesh_, rank);
    const ParameterTable& table = table_of(rank);
    std::vector<IndexRange> ranges = owned_by(rank);
    if (zero_stage_ == 0) {  // all have all: each sums a part
      const IndexRange chunks = part_of(table.flat_size() / kChunkElements, mesh_.data, at.data);
      ranges = {{chunks.begin * kChunkElements, chunks.end * kChunkElements}};
    }
    shares.push_back({.table = &table,
                      .ranges = std::move(ranges),
                      .counts_replicated = at.tensor == 0,
                      .counts_loss = at.tensor == 0 && at.pipeline + 1 == mesh_.pipeline});
  }
  return shares;
}

std::vector<ModelShare> ModelParts::model_shares() const {
  std::vector<ModelShare> shares;
  shares.reserve(static_cast<std::size_t>(mesh_.num_ranks()));
  for (int rank = 0; rank < mesh_.num_ranks(); ++rank) {
    shares.push_back({.table = &table_of(rank),
                      .owned = owned_by(rank),
                      .is_needed = zero_stage_ > 0 || position_of(mesh_, rank).data == 0});
  }
  return shares;
}

}  // namespace lockstep
