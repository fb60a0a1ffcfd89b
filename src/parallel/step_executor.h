// One optimiser step of a rank: its share of the global batch, the reduction, the update.
#pragma once

#include <map>

#include "data/batch_reader.h"
#include "optim/lr_schedule.h"
#include "parallel/gradient_reducer.h"
#include "parallel/model_state.h"
#include "parallel/pipeline_schedule.h"
#include "parallel/shared_gradient.h"
#include "parallel/stage_runner.h"
#include "parallel/step_exchange.h"
#include "parallel/virtual_layout.h"

namespace lockstep {

/// What all ranks know after a step, equal in every bit.
struct StepResult {
  double loss = 0;       ///< mean over the trained targets of the global batch; NaN if skipped
  double grad_norm = 0;  ///< before clipping
  double flags = 0;      ///< the largest flag of the ranks
  bool updated = false;  ///< false: no trained target, or a value that is not finite
  bool finite = true;    ///< false: loss or norm is not finite
};

/// By number of micro-batches of a global batch, what a rank of the pipeline does in a step. All ranks of the
/// data group do the same; entries for which a rank has no micro-batch it passes over.
using ScheduleByCount = std::map<long, std::vector<ScheduleEntry>>;

/// Runs steps. Everything it needs is allocated before the first one.
class StepExecutor {
 public:
  /// `schedules` has an entry for every number of micro-batches that a global batch can have; its entries
  /// count micro-batches of this rank, or with `by_rounds` (tree-fold) those of a round of its virtual ranks
  /// after those of the rounds before.
  StepExecutor(StageRunner& runner,
               ModelState& state,
               GradientReducer& reducer,
               SharedGradient& shared,
               StepExchange& exchange,
               const VirtualLayout& layout,
               bool by_rounds,
               ScheduleByCount schedules,
               Queue& queue);

  /// Of the losses of micro-batches, for the host.
  static std::size_t loss_bytes(const ScheduleByCount& schedules);

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
  void find_leaves(const StepBatch& batch);
  /// Which micro-batch an entry means.
  struct Place {
    int leaf = 0;
    long index = 0;  ///< among the rank's; -1: it has none
  };
  [[nodiscard]] Place place_of(long number) const;
  [[nodiscard]] StageRunner::BackwardSource source_at(const StepBatch& batch,
                                                      const Place& place,
                                                      float loss_scale) const;
  [[nodiscard]] static ModelInput input_at(const StepBatch& batch, const Place& place);
  [[nodiscard]] double own_loss();
  void run_schedule(const StepBatch& batch, float loss_scale);
  void run_forward(const StepBatch& batch, const ScheduleEntry& entry);
  void expect_next(const std::vector<ScheduleEntry>& entries, std::size_t current);
  void run_backward(const StepBatch& batch, const ScheduleEntry& entry, float loss_scale);
  void run_backward_input(const StepBatch& batch, const ScheduleEntry& entry, float loss_scale);
  void skip_backward(const ScheduleEntry& entry, const Place& place);
  void skip_empty_leaves(int chunk, int end);

  StageRunner* runner_;
  ModelState* state_;
  GradientReducer* reducer_;
  SharedGradient* shared_;
  StepExchange* exchange_;
  VirtualLayout layout_;
  bool by_rounds_;
  ScheduleByCount schedules_;
  std::vector<IndexRange> leaves_;  ///< own micro-batches of each owned virtual rank, from 0
  std::vector<int> next_leaf_;      ///< of each chunk: the first that was not begun
  Memory losses_;                   ///< of own micro-batches
  std::vector<double> leaf_losses_;
  bool computes_;
};

/// The model's view of a micro-batch of step `step`.
ModelInput model_input(const MicroBatch& batch, long step);

}  // namespace lockstep
