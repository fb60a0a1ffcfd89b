// Runs passes of the model's parts on this rank: memory of micro-batches in flight, messages to the
// stages before and behind.
#pragma once

#include <memory>
#include <vector>

#include "device/queue.h"
#include "nn/model.h"
#include "parallel/model_state.h"
#include "parallel/pipeline_links.h"
#include "parallel/weight_slots.h"
#include "tensor/activation_stack.h"

namespace lockstep {

class StageRunner {
 public:
  /// Bytes of stacks: of a micro-batch in flight, by chunk, and of what lives within a pass.
  struct StackBytes {
    std::vector<std::size_t> kept;
    std::size_t scratch = 0;
  };
  struct Options {
    TensorGroup* tensor = nullptr;  ///< the group that shares the model's blocks, null without one
    Recompute recompute = Recompute::kNone;
    PipelineLinks* links = nullptr;  ///< null: this rank has the whole depth of the model
    long rows_per_sample = 1;        ///< that norms of this rank work on
    WeightSlots* weights = nullptr;  ///< null: the state has all weights
    std::uint64_t seed = 0;          ///< of what passes of a training draw
  };

  /// `chunks` are the parts of the model on this rank, in order; one is everything without links. All of
  /// it outlives this. Without links kept and scratch share one stack.
  StageRunner(std::vector<Model*> chunks,
              const ModelState& state,
              const StackBytes& bytes,
              const Options& options,
              Queue& queue);

  [[nodiscard]] int num_chunks() const { return static_cast<int>(chunks_.size()); }

  /// `micro_batch` counts from 0 in every step. Collective over the tensor group; waits for the stage
  /// before. `progress` is called now and then.
  void forward(int chunk, long micro_batch, const ModelInput& input, FunctionRef<void()> progress);

  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): always made with all its parts
  struct BackwardTarget {
    Gradients gradients;
    bool accumulate = false;
    FunctionRef<void(long first)> ready;  ///< Pass::gradients_ready
    FunctionRef<void(int unit)> enter;    ///< UnitAccess::enter_gradients
  };
  /// Returns the loss, 0 on a stage without the head. Waits for the stage behind.
  double backward(int chunk,
                  long micro_batch,
                  const ModelInput& input,
                  float loss_scale,
                  const BackwardTarget& target);
  /// The same in two parts; only the first one returns the loss, waits and sends. Needs links.
  double backward_input(int chunk,
                        long micro_batch,
                        const ModelInput& input,
                        float loss_scale,
                        FunctionRef<void()> progress);
  void backward_weight(int chunk,
                       long micro_batch,
                       const ModelInput& input,
                       float loss_scale,
                       const BackwardTarget& target);

  /// A pass that other ranks of the data group make and this one has no micro-batch for: takes part in
  /// gathering weights, and calls on_unit for each unit that is gathered: what the rank owes to the sums of
  /// its gradients must come in the same order.
  void skip(int chunk, Model::PassKind kind, FunctionRef<void(int unit)> on_unit);
  /// To be called when the weights were updated.
  void weights_changed();

  /// Lets messages that a coming pass needs be received meanwhile.
  void expect(int chunk, long micro_batch, bool is_forward);

  /// Loss of a micro-batch through all chunks, 0 on a rank without the head.
  LossPart evaluate(long micro_batch, const ModelInput& input);

  /// Waits until all messages have left.
  void finish();

  [[nodiscard]] std::size_t stack_bytes() const;

 private:
  struct Chunk {
    Model* model;
    std::vector<std::unique_ptr<ActivationStack>> slots;
  };

  // Passes ask it for weights and for room for gradients.
  class Access final : public UnitAccess {
   public:
    Access(WeightSlots* weights, FunctionRef<void(int)> enter) : weights_(weights), enter_(enter) {}
    void enter_weights(int unit) override;
    void leave_weights(int unit) override;
    void enter_gradients(int unit) override { enter_(unit); }

   private:
    WeightSlots* weights_;
    FunctionRef<void(int)> enter_;
  };

  [[nodiscard]] BackwardTarget no_target(FunctionRef<void(long)> ready,
                                         FunctionRef<void(int)> enter) const {
    return {.gradients = Gradients(state_->table(), nullptr), .ready = ready, .enter = enter};
  }
  /// What a backward pass or part of one is beside its target.
  struct BackwardKind {
    BackwardPart part = BackwardPart::kWhole;
    Model::PassKind kind = Model::PassKind::kBackward;
    const char* name = "";
  };
  double run_backward(const BackwardKind& kind,
                      int chunk,
                      const PassBoundary& boundary,
                      const ModelInput& input,
                      float loss_scale,
                      const BackwardTarget& target);
  double backward_and_send(const BackwardKind& kind,
                           int chunk,
                           long micro_batch,
                           const ModelInput& input,
                           float loss_scale,
                           const BackwardTarget& target);
  [[nodiscard]] Pass make_pass(int chunk,
                               const PassBoundary& boundary,
                               const BackwardTarget& target,
                               Recompute recompute,
                               Access& access);
  void begin_pass(int chunk, Model::PassKind kind);
  [[nodiscard]] TrainingPlace place_of(const ModelInput& input) const {
    return {.seed = options_.seed, .step = input.step, .first_sample = input.first_sample};
  }

  const ModelState* state_;
  Options options_;
  Queue* queue_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<ActivationStack> scratch_;  ///< with links only
};

}  // namespace lockstep
