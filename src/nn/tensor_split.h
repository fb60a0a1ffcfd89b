// Which blocks of the tensor split a rank has.
#pragma once

#include "base/integers.h"

namespace lockstep {

/// Split parameters are cut into `num_blocks` blocks (parallel.virtual_tensor, W); `ranks` (T) ranks
/// own num_blocks / ranks neighbouring ones each, a power of two, so that what a rank sums is a
/// whole subtree of the aligned tree over the blocks.
struct TensorSplit {
  int num_blocks = 1;
  int ranks = 1;
  int rank = 0;
  /// Norms and residuals work on the rank's part of every sequence only (Korthikanti et al., "Reducing
  /// activation recomputation in large transformer models", 2022).
  bool sequence = false;

  TensorSplit() = default;
  /// All blocks on one rank. Implicit: most callers have no group.
  TensorSplit(int blocks) : num_blocks(blocks) {}  // NOLINT(google-explicit-constructor)
  TensorSplit(int blocks, int num_ranks, int own_rank, bool by_sequence = false)
      : num_blocks(blocks),
        ranks(num_ranks),
        rank(own_rank),
        sequence(by_sequence && num_ranks > 1) {}

  [[nodiscard]] int local_blocks() const { return num_blocks / ranks; }
  [[nodiscard]] int first_block() const { return rank * local_blocks(); }
  /// The tokens of a sequence that norms and residuals of this rank work on.
  [[nodiscard]] IndexRange own_tokens(long seq_length) const {
    return sequence ? part_of(seq_length, ranks, rank) : IndexRange{0, seq_length};
  }
};

}  // namespace lockstep
