// How the rows of a sum over tokens are cut into pieces: by shape, never by threads.
#pragma once

#include <algorithm>

#include "base/integers.h"
#include "kernels/norm.h"

namespace lockstep {

/// The pieces of every token block, in order. The rows of a block are its tokens of sequence 0,
/// then of sequence 1, ...; a piece is a range of them. A block has at most kMaxPieces pieces, so
/// that their partial sums stay small beside the activations.
class RowPieces {
 public:
  static constexpr long kLeastRows = 32;
  static constexpr long kMaxPieces = 64;

  RowPieces(long rows, const TokenBlocks& blocks)
      : blocks_(blocks), num_sequences_(rows / blocks.seq_length) {}

  [[nodiscard]] long rows_of(long block) const { return num_sequences_ * tokens_of(block).size(); }
  [[nodiscard]] long rows_per_piece(long block) const {
    return std::max(kLeastRows, ceil_div(rows_of(block), kMaxPieces));
  }
  [[nodiscard]] long pieces_of(long block) const {
    return ceil_div(rows_of(block), rows_per_piece(block));
  }
  [[nodiscard]] long num_blocks() const { return blocks_.count; }
  /// Pieces of all blocks.
  [[nodiscard]] long count() const {
    long pieces = 0;
    for (long block = 0; block < blocks_.count; ++block) {
      pieces += pieces_of(block);
    }
    return pieces;
  }

  /// A piece as rows of its block.
  struct Piece {
    long block = 0;
    IndexRange rows;
  };
  [[nodiscard]] Piece piece(long index) const {
    long block = 0;
    while (index >= pieces_of(block)) {
      index -= pieces_of(block);
      ++block;
    }
    const long step = rows_per_piece(block);
    return {block, {index * step, std::min((index + 1) * step, rows_of(block))}};
  }

  /// The matrix row of row `index` of a block.
  [[nodiscard]] long row_of(long block, long index) const {
    const IndexRange tokens = tokens_of(block);
    return index / tokens.size() * blocks_.seq_length + tokens.begin + index % tokens.size();
  }

 private:
  [[nodiscard]] IndexRange tokens_of(long block) const { return blocks_.tokens_of(block); }

  TokenBlocks blocks_;
  long num_sequences_;
};

}  // namespace lockstep
