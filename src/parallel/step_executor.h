// One optimiser step of a rank: its share of the global batch, the reduction, the update.
#pragma once

#include "comm/communicator.h"
#include "data/batch_reader.h"
#include "nn/model.h"
#include "optim/lr_schedule.h"
#include "parallel/gradient_reducer.h"
#include "parallel/model_state.h"
#include "parallel/step_exchange.h"
#include "parallel/virtual_layout.h"
#include "tensor/activation_stack.h"

namespace lockstep {

/// What all ranks know after a step, equal in every bit.
struct StepResult {
  double loss = 0;       ///< mean over the trained targets of the global batch; NaN if skipped
  double grad_norm = 0;  ///< before clipping
  double flags = 0;      ///< the largest flag of the ranks
  bool updated = false;  ///< false: no trained target, or a value that is not finite
  bool finite = true;    ///< false: loss or norm is not finite
};

/// Runs steps. Everything it needs is allocated before the first one.
class StepExecutor {
 public:
  StepExecutor(Model& model,
               ModelState& state,
               ActivationStack& stack,
               GradientReducer& reducer,
               StepExchange& exchange,
               const VirtualLayout& layout,
               Queue& queue);

  /// What a step does beside its batch.
  struct Settings {
    double lr = 0;
    double grad_clip = 0;  ///< 0: off
    long update_number = 1;
    double flags = 0;  ///< this rank's wish; the largest of all ranks comes back in the result
  };

  /// Collective. Forward and backward of the rank's micro-batches, reduction, norm, clipping and
  /// update. Without a trained target in the global batch, or when loss or norm is not finite,
  /// nothing is updated.
  StepResult run(const StepBatch& batch, const Settings& settings);

 private:
  double run_leaf(const StepBatch& batch, int owned_index, float loss_scale);

  Model* model_;
  ModelState* state_;
  ActivationStack* stack_;
  GradientReducer* reducer_;
  StepExchange* exchange_;
  VirtualLayout layout_;
  Queue* queue_;
  std::vector<double> leaf_losses_;
};

/// The model's view of a micro-batch.
ModelInput model_input(const MicroBatch& batch);

}  // namespace lockstep
