// Softmax, cross entropy and its gradient over one chunk of logits.
#pragma once

#include <cstdint>

#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// losses[i] = log(sum_c exp(logits[i, c])) - logits[i, targets[i]], and 0 where the target is
/// negative (not trained). Columns from num_classes on are padding: they are left out of the sum and
/// get gradient 0. The columns lie in `blocks` equal blocks (a split vocabulary): exponentials are
/// summed within a block and the blocks combined by the aligned tree.
/// dlogits = round((softmax - onehot) * scale), zero rows where the target is negative; absent for
/// evaluation; may alias logits when both are f32.
/// predictions (may be null) gets the column of the largest logit, the first of equals.
struct SoftmaxCrossEntropy {
  static constexpr const char* kName = "softmax_cross_entropy";

  Matrix logits;  ///< f32
  long num_classes = 0;
  int blocks = 1;
  const std::int32_t* targets = nullptr;
  float scale = 1.0F;
  Matrix dlogits;
  float* losses = nullptr;
  std::int32_t* predictions = nullptr;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const SoftmaxCrossEntropy& op);

/// *sum = sum of losses[0..count) in f64, in index order.
struct LossSum {
  static constexpr const char* kName = "loss_sum";

  const float* losses = nullptr;
  long count = 0;
  double* sum = nullptr;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const LossSum& op);

}  // namespace lockstep
