// Which part of the model every rank of a mesh has: pure arithmetic, the same on all ranks.
#pragma once

#include <memory>
#include <vector>

#include "nn/model.h"
#include "parallel/mesh.h"
#include "parallel/model_state.h"
#include "parallel/parallel_config.h"
#include "parallel/step_exchange.h"
#include "parallel/whole_model.h"

namespace lockstep {

/// The mesh for `num_ranks` ranks: the configured degrees, and for data what is left. Errors:
/// RequestError, with the meshes that are possible, when the degrees do not multiply to num_ranks or
/// the model cannot be split that way.
MeshShape choose_mesh(const ParallelConfig& parallel, const ModelConfig& model, int num_ranks);

/// Whether every one of `tensor` ranks would have a part of each split layer, cut into `virtual_tensor`
/// blocks.
bool can_split(const ModelConfig& model, int tensor, int virtual_tensor);

/// Models that share a table: the chunks of a rank, in the order of the layers.
using ModelChunks = std::vector<std::unique_ptr<Model>>;

class ModelParts {
 public:
  ModelParts(const ModelConfig& model,
             DType dtype,
             int virtual_tensor,
             const MeshShape& mesh,
             const ParallelConfig& parallel);

  /// The whole model in all blocks of the virtual layout, and in one block a parameter.
  [[nodiscard]] const ParameterTable& whole() const { return whole_->parameters(); }
  [[nodiscard]] const ParameterTable& canonical() const { return canonical_->parameters(); }
  [[nodiscard]] double operations_per_target() const { return whole_->operations_per_target(); }
  [[nodiscard]] const ModelChunks& chunks_of(int rank) const;
  [[nodiscard]] const ParameterTable& table_of(int rank) const {
    return chunks_of(rank).front()->parameters();
  }
  /// Elements of the parameters of each chunk of a rank.
  [[nodiscard]] std::vector<IndexRange> chunk_elements(int rank) const;
  /// False where every rank has all weights and optimiser state.
  [[nodiscard]] bool is_spread() const;

  /// How the state of `rank` is sharded over its data group.
  /// `packed_gradients`: GradientReducer::is_packed.
  [[nodiscard]] ShardPlan shards_of(int rank,
                                    Communicator& data_group,
                                    bool packed_gradients) const;
  [[nodiscard]] int zero_stage() const { return zero_stage_; }
  [[nodiscard]] std::vector<IndexRange> buckets_of(int rank) const;
  [[nodiscard]] std::vector<StepExchange::Share> norm_shares() const;
  [[nodiscard]] std::vector<ModelShare> model_shares() const;

 private:
  [[nodiscard]] std::vector<IndexRange> owned_by(int rank) const;

  MeshShape mesh_;
  int zero_stage_;
  long bucket_bytes_;
  std::unique_ptr<Model> whole_;
  std::unique_ptr<Model> canonical_;
  std::vector<ModelChunks> chunks_;  ///< [pipeline][tensor]
};

}  // namespace lockstep
