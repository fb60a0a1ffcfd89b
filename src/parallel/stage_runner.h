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
  /// Bytes of a micro-batch's inputs and targets, and of its predictions if it has any.
  struct InputBytes {
    std::size_t inputs = 0;
    std::size_t targets = 0;
    std::size_t predictions = 0;
  };
  struct Options {
    TensorGroup* tensor = nullptr;  ///< the group that shares the model's blocks, null without one
    Recompute recompute = Recompute::kNone;
    PipelineLinks* links = nullptr;  ///< null: this rank has the whole depth of the model
    long rows_per_sample = 1;        ///< that norms of this rank work on
    WeightSlots* weights = nullptr;  ///< null: the state has all weights
    InputBytes inputs = {};          ///< of a whole micro-batch
    long micro_batch_size = 1;       ///< samples of a whole micro-batch
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

  /// Inputs are in memory of the host, and stay as they are until the call returns.
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
  /// A micro-batch for a backward pass.
  struct BackwardSource {
    ModelInput input;
    float loss_scale = 1.0F;
    double* loss = nullptr;  ///< Pass::loss; a stage without the head leaves it as it is
  };
  /// Waits for the stage behind.
  void backward(int chunk,
                long micro_batch,
                const BackwardSource& source,
                const BackwardTarget& target);
  /// The same in two parts; only the first one finds the loss, waits and sends. Needs links.
  void backward_input(int chunk,
                      long micro_batch,
                      const BackwardSource& source,
                      FunctionRef<void()> progress);
  void backward_weight(int chunk,
                       long micro_batch,
                       const BackwardSource& source,
                       const BackwardTarget& target);

  /// A pass that other ranks of the data group make and this one has no micro-batch for: takes part in
  /// gathering weights, and calls on_unit for each unit that is gathered: what the rank owes to the sums of
  /// its gradients must come in the same order.
  void skip(int chunk, Model::PassKind kind, FunctionRef<void(int unit)> on_unit);
  /// To be called when the weights were updated.
  void weights_changed();

  /// Lets messages that a coming pass needs be received meanwhile.
  void expect(int chunk, long micro_batch, bool is_forward);

  struct LossPart {
    double sum = 0;  ///< of the losses of trained targets; 0 on a rank without the head
    /// Of a classifier: the class with the largest logit, one an image; valid until the next call.
    const std::int32_t* predictions = nullptr;
  };
  /// A micro-batch through all chunks. Waits for its result.
  LossPart evaluate(long micro_batch, const ModelInput& input);

  /// Waits until all messages have left.
  void finish();

  [[nodiscard]] std::size_t stack_bytes() const;
  /// Of inputs on the device, where that is not the host, and of results for the host.
  [[nodiscard]] std::size_t input_bytes() const { return inputs_.bytes() + targets_.bytes(); }
  [[nodiscard]] std::size_t result_bytes() const { return predictions_.bytes() + loss_.bytes(); }

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
  void run_backward(const BackwardKind& kind,
                    int chunk,
                    const PassBoundary& boundary,
                    const BackwardSource& source,
                    const BackwardTarget& target);
  void backward_and_send(const BackwardKind& kind,
                         int chunk,
                         long micro_batch,
                         const BackwardSource& source,
                         const BackwardTarget& target);
  /// The input in memory of the device.
  ModelInput on_device(const ModelInput& input);
  std::byte* upload(const Memory& memory, const void* from, std::size_t bytes);
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
  Memory inputs_;                             ///< on a device that is not the host
  Memory targets_;
  Memory predictions_;  ///< for the host
  Memory loss_;         ///< of an evaluation
};

}  // namespace lockstep
