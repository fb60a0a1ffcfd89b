// Runs passes of the model's parts on this rank: memory of micro-batches in flight, messages to the
// stages before and behind.
#pragma once

#include <memory>
#include <vector>

#include "device/queue.h"
#include "nn/model.h"
#include "parallel/model_state.h"
#include "parallel/pipeline_links.h"
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
    Communicator* world = nullptr;   ///< polled within passes
    long rows_per_sample = 1;        ///< that norms of this rank work on
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

  struct BackwardTarget {
    Gradients gradients;
    bool accumulate = false;
    FunctionRef<void(long first)> ready;  ///< Pass::gradients_ready
  };
  /// Returns the loss, 0 on a stage without the head. Waits for the stage behind.
  double backward(int chunk,
                  long micro_batch,
                  const ModelInput& input,
                  float loss_scale,
                  const BackwardTarget& target);

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

  [[nodiscard]] Pass make_pass(int chunk,
                               const PassBoundary& boundary,
                               const BackwardTarget& target,
                               Recompute recompute);

  const ModelState* state_;
  Options options_;
  Queue* queue_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<ActivationStack> scratch_;  ///< with links only
};

}  // namespace lockstep
