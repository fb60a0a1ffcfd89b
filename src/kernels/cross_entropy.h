// Softmax, cross entropy and its gradient over one chunk of logits.
#pragma once

#include <cstdint>

#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// What the ranks of a split vocabulary know of each row together, as ClassSums of every one of
/// `parts` ranks left it; parts 0: nothing, the op has all classes.
struct ClassStatistics {
  int parts = 0;
  const float* maxima = nullptr;  ///< a row
  const float* sums = nullptr;    ///< [parts x (blocks + 1) x rows]
};

/// losses[i] = log(sum_c exp(logits[i, c])) - logits[i, targets[i]], and 0 where the target is
/// negative (not trained). Columns from num_classes on are padding: they are left out of the sum and
/// get gradient 0. The columns lie in `blocks` equal blocks (a split vocabulary): exponentials are
/// summed within a block and the blocks combined by the aligned tree.
/// Of a vocabulary that is split over ranks the op has `blocks` blocks from class `first_class` on, and
/// the statistics of all ranks.
/// dlogits = round((softmax - onehot) * scale), zero rows where the target is negative; absent for
/// evaluation; may alias logits when both are f32.
/// predictions (may be null) gets the column of the largest logit, the first of equals.
struct SoftmaxCrossEntropy {
  static constexpr const char* kName = "softmax_cross_entropy";

  Matrix logits;         ///< f32
  long num_classes = 0;  ///< of the whole vocabulary
  long first_class = 0;
  int blocks = 1;
  const std::int32_t* targets = nullptr;
  float scale = 1.0F;
  Matrix dlogits;
  float* losses = nullptr;
  std::int32_t* predictions = nullptr;
  ClassStatistics statistics = {};

  /// Classes among the columns, before padding.
  [[nodiscard]] long own_classes() const;
  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const SoftmaxCrossEntropy& op);

/// maxima[i] = the largest of row i's own classes, -infinity if there are none.
struct ClassMaxima {
  static constexpr const char* kName = "class_maxima";

  SoftmaxCrossEntropy of;
  float* maxima = nullptr;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const ClassMaxima& op);

/// largest[i] = the largest of maxima[p * rows + i] over the parts p; sums[b * rows + i] = the sum of
/// exp(logit - largest[i]) over the own classes of block b; sums[blocks * rows + i] = the logit of
/// the target, 0 where it is not among the own classes.
struct ClassSums {
  static constexpr const char* kName = "class_sums";

  SoftmaxCrossEntropy of;
  const float* maxima = nullptr;
  int num_parts = 1;
  float* largest = nullptr;
  float* sums = nullptr;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const ClassSums& op);

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
