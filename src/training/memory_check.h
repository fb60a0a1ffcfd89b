// Whether the ranks of a host fit into its memory, and what to change where they do not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "training/rank_plan.h"

namespace lockstep {

/// A change of the configuration that takes less memory.
///
/// The cost is an estimate of what a step takes longer, as a part of it; it serves to order changes and
/// is no promise:
///   checkpoint.async = false      0.001  training stands still while a checkpoint is written
///   parallel.zero_stage = 1       0.01   updated weights are gathered after the update
///   parallel.zero_stage = 2       0.02   gradients are reduced a unit at a time
///   parallel.zero_stage = 3       0.1    weights are gathered for every pass
///   ... accumulate = tree-fold    0.02   with stage 2 or 3: a reduction every round of micro-batches
///   train.micro_batch_size        0.03   for every halving: smaller products
///   train.recompute = selective   0.05   attention and activation functions once more
///   train.recompute = full        0.33   a third of the operations, the forward pass, once more
///   parallel.tensor               0.1    for every doubling: exchanges within each layer
///   parallel.pipeline = P                how much (P - 1) / (micro-batches * chunks), the bubble, grows
/// Costs of changes that are made together add up.
///
/// To shard gradients, stages 2 and 3 need one virtual rank a data rank, and one micro-batch of it before
/// a reduction (GradientReducer). Where a virtual rank has several, tree-fold, which changes the bits, is
/// proposed with them; where a data rank has several virtual ranks, stage 2 saves nothing and is left out.
struct MemoryChange {
  TrainingConfig config;  ///< with the change made
  MeshShape mesh;
  std::string text;  ///< `parallel.zero_stage = 1, train.recompute = "selective"`
  double cost = 0;
  /// How far each of the kinds goes, 0 for not at all: tensor degree, pipeline degree, asynchronous
  /// writing, ZeRO, recomputation, halvings, tree-fold.
  std::vector<int> extent;

  /// Whether this does all that `other` does, and perhaps more.
  [[nodiscard]] bool includes(const MemoryChange& other) const;
};

/// All changes that could be made on the same ranks and keep what is learnt (model, global batch,
/// optimiser, precision), alone and together, the cheapest first. The mesh is changed along one axis at
/// most, at the cost of data ranks. Whether model and schedule allow the mesh is not checked.
std::vector<MemoryChange> memory_changes(const RunOutline& outline);

/// The outline with the change made; none where model or schedule do not allow it.
std::optional<RunOutline> outline_with(const RunOutline& outline, const MemoryChange& change);

/// Compares what the ranks of each host need with what is free there, or what each rank needs of its GPU; `mine`
/// is this rank's plan.
/// Collective. Errors: RequestError on all ranks when a host has too little, with up to three of the
/// cheapest changes that would do, found by planning them. Cost: some hundred plans at most; what cannot
/// fit with all else changed is not looked at.
void check_memory_fits(const RunOutline& outline,
                       const MemoryPlan& mine,
                       Communicator& group,
                       Queue& queue);

}  // namespace lockstep
