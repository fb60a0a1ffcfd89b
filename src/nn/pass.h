// What a forward or backward pass of one micro-batch works with.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "base/function_ref.h"
#include "device/queue.h"
#include "nn/tensor_group.h"
#include "nn/weights.h"
#include "tensor/activation_stack.h"

namespace lockstep {

/// One micro-batch in memory of the pass's device. Tokens: inputs are token ids [batch x seq_length]. Images:
/// features are f32 [batch x features]. A negative target is not trained.
struct ModelInput {
  long batch = 0;
  const std::int32_t* tokens = nullptr;
  const float* features = nullptr;
  const std::int32_t* targets = nullptr;
  /// In training: steps before this one, and the first sample's number in the global batch.
  long step = 0;
  long first_sample = 0;
};

/// Where a micro-batch stands in a training: what random numbers of its passes are a function of.
struct TrainingPlace {
  std::uint64_t seed = 0;
  long step = 0;
  long first_sample = 0;
};

/// What a forward pass does not keep, because the backward pass computes it again; the bits are the
/// same. kSelective: the outputs of attention and of activation functions. kFull: all but the input
/// of each block.
enum class Recompute : std::uint8_t { kNone, kSelective, kFull };

/// "none", "selective" or "full".
Recompute recompute_from(const std::string& name);

/// A backward pass, or one of the halves in which a pipeline can make it: other stages wait for gradients
/// of activations, none for those of weights. The bits are the same.
/// kInput finds gradients of activations and touches no gradient of a parameter. It keeps on the
/// micro-batch's stack, above what forward kept, what kWeight needs: the gradient of the output of each
/// linear layer, and the gradients of parameters that come out of the same kernel as one of activations.
/// kWeight, some time later, finds gradients of parameters, reads no weights but the head's, and frees the
/// stack.
enum class BackwardPart : std::uint8_t { kWhole, kInput, kWeight };

/// Where a stage of a pipeline hands over to others: rows that norms work on [own rows x hidden], in
/// the dtype of the products. Absent where the stage has the embedding, or the head.
struct PassBoundary {
  /// Forward: the output of the stage before. Kept as it is until the backward pass.
  Matrix input;
  /// Forward: gets the output of this stage.
  Matrix output;
  /// Backward: the gradient of `output`, which becomes that of `input` in place. A stage with the head
  /// finds its gradient itself, and needs the memory if it has an input. Absent in a kWeight part.
  Matrix gradient;
  /// Which of the micro-batches between forward and backward this is, from 0.
  int slot = 0;
};

/// Where ranks share weights and gradients: brings the weights of a unit (ParameterTable) while they are
/// used, and memory for its gradients.
class UnitAccess {
 public:
  virtual ~UnitAccess() = default;
  /// Before the weights of `unit` are read. The units of a pass come in Model::weight_order.
  virtual void enter_weights(int unit) = 0;
  /// After they were read.
  virtual void leave_weights(int unit) = 0;
  /// Before gradients of `unit` are written; units().size(): the tied input side.
  virtual void enter_gradients(int unit) = 0;
};

/// Everything a layer needs beside its inputs.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): always made with all its parts
struct Pass {
  Queue& queue;
  /// Keeps what the backward pass of the micro-batch needs.
  ActivationStack& stack;
  Weights weights;
  Gradients gradients;
  /// False at the first micro-batch of a virtual rank: gradients are written, not added to. Also false
  /// in a kInput part.
  bool accumulate = false;
  /// Called in a backward pass when every gradient from element `first` of the flat gradient
  /// buffer on is complete; a good moment to let communication progress, too.
  FunctionRef<void(long first)> gradients_ready;
  /// The ranks that have the other blocks; null: this rank has all of them.
  TensorGroup* tensor = nullptr;
  Recompute recompute = Recompute::kNone;  ///< not kFull where backward passes have two parts
  BackwardPart part = BackwardPart::kWhole;
  /// For what lives within a pass only; null: `stack`. A pipeline keeps several micro-batches, each on a
  /// stack of its own, and has one of these. Parts of a backward pass need it.
  ActivationStack* scratch_stack = nullptr;
  PassBoundary boundary = {};
  UnitAccess* units = nullptr;  ///< null: all is there
  /// Where the model has its head: gets the sum of the losses of the trained targets, not scaled; memory of
  /// Queue::allocate_for_host, there once the queue is synchronised. Null: nobody wants it.
  double* loss = nullptr;
  /// By what models with dropout draw; all passes of a micro-batch have the same. Absent: nothing is
  /// dropped, as in evaluation.
  std::optional<TrainingPlace> place = std::nullopt;

  /// Whether a backward pass finds gradients of activations, and those of parameters.
  [[nodiscard]] bool finds_inputs() const { return part != BackwardPart::kWeight; }
  [[nodiscard]] bool finds_weights() const { return part != BackwardPart::kInput; }
  void enter_weights(int unit) const {
    if (units != nullptr) {
      units->enter_weights(unit);
    }
  }
  void leave_weights(int unit) const {
    if (units != nullptr) {
      units->leave_weights(unit);
    }
  }
  void enter_gradients(int unit) const {
    if (units != nullptr && finds_weights()) {
      units->enter_gradients(unit);
    }
  }
  [[nodiscard]] ActivationStack& scratch() const {
    return scratch_stack == nullptr ? stack : *scratch_stack;
  }
  /// Reports that the gradients of `parameter` and of all parameters behind it are complete, unless this
  /// part finds none.
  void gradients_complete_from(int parameter) const {
    if (!finds_weights()) {
      poll();
      return;
    }
    const ParameterTable& table = weights.table();
    gradients_ready(table.tied_size() + table[parameter].offset);
  }
  /// Reports that all gradients from the first of `own` elements of the weights on are complete.
  void gradients_complete_to_front(IndexRange own) const {
    gradients_ready(own.begin == 0 ? 0 : weights.table().tied_size() + own.begin);
  }
  /// Lets communication progress where nothing new is complete. Messages between hosts move only
  /// then, so a backward pass calls it between products.
  void poll() const { gradients_ready(std::numeric_limits<long>::max()); }
};

}  // namespace lockstep
