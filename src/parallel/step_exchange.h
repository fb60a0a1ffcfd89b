// The one small exchange of a step: loss, gradient norm and decisions, equal on all ranks.
#pragma once

#include <vector>

#include "base/function_ref.h"
#include "device/queue.h"
#include "nn/parameter_table.h"
#include "parallel/gradient_reducer.h"
#include "parallel/mesh.h"
#include "parallel/norm_tree.h"

namespace lockstep {

/// Squared norm of the gradients of the whole model in the order of NormTree. Each rank sums chunks
/// that it owns; only the values of covering nodes travel. Replicated parameters count once.
class StepExchange {
 public:
  /// A rank's share of the norm: elements of its flat parameter buffer.
  struct Share {
    const ParameterTable* table = nullptr;  ///< used by the constructor only
    std::vector<IndexRange> ranges;
    bool counts_replicated = true;
    bool counts_loss = true;  ///< of the ranks that compute a loss alike, one says so
  };

  /// `shares` of all ranks of `world`, by rank; `whole` is the table of the whole model; `pieces` says
  /// where the gradients of the own share will be. The own share's table outlives this.
  StepExchange(const ParameterTable& whole,
               const std::vector<Share>& shares,
               const std::vector<GradientPiece>& pieces,
               Communicator& world,
               Queue& queue);

  struct Result {
    double loss = 0;  ///< tree sum over the losses of the ranks that count them, by rank
    double squared_norm = 0;
    double flags = 0;  ///< the largest of the ranks' flags
  };

  /// Collective; waits for the device and for the others. `gradients` is the result of a GradientReducer; `loss`,
  /// called when the device is done, gives the root of this rank's subtree of losses; `flags` is a small
  /// number by which a rank asks for something: the largest wins.
  Result exchange(const float* gradients, FunctionRef<double()> loss, double flags);

  /// What it takes from the queue.
  static std::size_t planned_bytes(const ParameterTable& table);

 private:
  void sum_chunks(const float* gradients);
  void gather();

  Communicator* world_;
  Queue* queue_;
  NormTree tree_;
  const ParameterTable* table_;
  std::vector<GradientPiece> ranges_;  ///< elements that are summed here
  std::vector<int> local_of_;          ///< index in the own table by index in the whole one, or -1
  std::vector<std::vector<NormNode>> nodes_;  ///< by rank
  std::vector<int> loss_ranks_;
  NormCombination combination_;
  std::size_t values_a_rank_ = 0;
  Memory chunk_sums_;  ///< of all chunks of the own buffer, for the host; those not summed stay 0
  std::vector<double> mine_;
  std::vector<double> all_;  ///< [piece of values][rank][value]
  std::vector<double> losses_;
  std::vector<double> node_values_;
};

}  // namespace lockstep
