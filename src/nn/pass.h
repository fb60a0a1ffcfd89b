// What a forward or backward pass of one micro-batch works with.
#pragma once

#include <cstdint>
#include <limits>

#include "base/function_ref.h"
#include "device/queue.h"
#include "nn/weights.h"
#include "tensor/activation_stack.h"

namespace lockstep {

/// One micro-batch in host memory. Tokens: inputs are token ids [batch x seq_length]. Images:
/// features are f32 [batch x features]. A negative target is not trained.
struct ModelInput {
  long batch = 0;
  const std::int32_t* tokens = nullptr;
  const float* features = nullptr;
  const std::int32_t* targets = nullptr;
};

/// Everything a layer needs beside its inputs.
// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): always made with all its parts
struct Pass {
  Queue& queue;
  ActivationStack& stack;
  Weights weights;
  Gradients gradients;
  /// False at the first micro-batch of a virtual rank: gradients are written, not added to.
  bool accumulate = false;
  /// Called in a backward pass when every gradient from element `first` of the flat gradient
  /// buffer on is complete; a good moment to let communication progress, too.
  FunctionRef<void(long first)> gradients_ready;

  /// Reports that the gradients of `parameter` and of all parameters behind it are complete.
  void gradients_complete_from(int parameter) const {
    const ParameterTable& table = weights.table();
    gradients_ready(table.tied_size() + table[parameter].offset);
  }
  /// Lets communication progress where nothing new is complete. Messages between hosts move only
  /// then, so a backward pass calls it between products.
  void poll() const { gradients_ready(std::numeric_limits<long>::max()); }
};

/// What a micro-batch adds to the loss.
struct LossPart {
  double sum = 0;  ///< of the losses of its trained targets, not scaled
  /// Evaluation of a classifier: the class with the largest logit, one an image; valid until
  /// something else is pushed on the pass's stack. Null otherwise.
  const std::int32_t* predictions = nullptr;
};

}  // namespace lockstep
