// Dropout in layers: from a pass and a split to what the kernels draw by.
#pragma once

#include "kernels/attention.h"
#include "nn/pass.h"
#include "nn/tensor_split.h"

namespace lockstep {

/// Dropout of one layer of a model. Drops nothing in passes without a place in a training, or with probability 0.
struct LayerDropout {
  double probability = 0;
  long layer = 0;  ///< of the whole model; 0 for the embedding
  TensorSplit split;
  long seq_length = 1;

  [[nodiscard]] DropoutSource at(const Pass& pass, DropoutSite site) const;
  [[nodiscard]] bool drops(const Pass& pass) const { return probability > 0 && pass.place; }

  /// What attention draws by; `first_head` counts over the whole layer.
  [[nodiscard]] AttentionDropout of_heads(const Pass& pass, long first_head) const;

  /// Writes dropout of x, or of its gradient, to y and returns it; returns x where nothing is dropped. Both have
  /// the rows that norms work on (TensorSplit::own_tokens); y may be x.
  Matrix apply(Pass& pass, DropoutSite site, Matrix x, Matrix y) const;
};

}  // namespace lockstep
