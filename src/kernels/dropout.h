// Dropout of activations: the masks are those of base/dropout_mask.h.
#pragma once

#include "base/dropout_mask.h"
#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// Where the rows of a matrix stand in the global batch: they are neighbouring samples of `tokens` rows
/// each, which start at token `first_token` of the sequence (not 0 where sequences are split).
struct SampleRows {
  long first_sample = 0;
  long tokens = 1;
  long first_token = 0;
};

/// y = round(x * mask), where a mask is 0 or 1 / (1 - probability), in f32; dropped elements become 0
/// whatever they are. The backward pass is the same. y may be x; both have one dtype.
struct Dropout {
  static constexpr const char* kName = "dropout";

  DropoutSource source;
  SampleRows rows;
  Matrix x;
  Matrix y;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const Dropout& op);

}  // namespace lockstep
