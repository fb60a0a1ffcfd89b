// The one small exchange of a step: loss, gradient norm and decisions, equal on all ranks.
#pragma once

#include <vector>

#include "base/aligned_tree.h"
#include "comm/communicator.h"
#include "device/queue.h"

namespace lockstep {

/// Squared norm of a flat buffer, sums of squares of its 4,096-element chunks combined by the
/// aligned tree over chunks. Each rank sums the chunks of its share; only subtree roots travel.
class StepExchange {
 public:
  /// `count`: elements of the buffer, a multiple of kChunkElements. `num_losses`: losses (f64) that
  /// every rank contributes, in the order of the ranks.
  StepExchange(long count, Communicator& group, Queue& queue);

  struct Result {
    double loss = 0;  ///< tree sum over the ranks' losses
    double squared_norm = 0;
    double flags = 0;  ///< the largest of the ranks' flags
  };

  /// Collective; waits for the others. `loss` is the root of this rank's subtree of losses;
  /// `flags` is a small number by which a rank asks for something: the largest wins.
  Result exchange(const float* buffer, double loss, double flags);

 private:
  [[nodiscard]] double subtree(TreeNode node) const;
  double combine(TreeNode node, std::size_t& cursor) const;

  Communicator* group_;
  Queue* queue_;
  long num_chunks_;
  IndexRange own_;
  std::vector<std::vector<TreeNode>> nodes_;  ///< by rank: the subtrees it sums
  std::size_t values_a_rank_ = 0;
  std::vector<double> chunk_sums_;  ///< of the own chunks
  std::vector<double> mine_;
  std::vector<double> all_;
  std::vector<double> losses_;
  std::vector<TreeNode> ordered_nodes_;  ///< of all ranks, by first chunk
  std::vector<double> node_values_;
};

}  // namespace lockstep
