// How a CUDA device cuts the rows of a sum over tokens into pieces: by shape, never by what the device has. For hosts,
// which plan scratch memory with it, and for kernels.
#pragma once

#include "base/integers.h"
#include "kernels/norm.h"

namespace lockstep {

/// The rows of a token block are its tokens of sequence 0, then of sequence 1, ...; a piece is a range of them.
class TokenRows {
 public:
  /// Pieces of at least `least_rows` rows (but the last of a block), at most `most_pieces` a block.
  constexpr TokenRows(long rows, const TokenBlocks& blocks, long least_rows, long most_pieces)
      : blocks_(blocks),
        num_sequences_(rows / blocks.seq_length),
        least_rows_(least_rows),
        most_pieces_(most_pieces) {}

  [[nodiscard]] constexpr int num_blocks() const { return blocks_.count; }
  [[nodiscard]] constexpr long rows_of(long block) const {
    return num_sequences_ * tokens_of(block).size();
  }
  [[nodiscard]] constexpr long rows_per_piece(long block) const {
    const long rows = ceil_div(rows_of(block), most_pieces_);
    return rows > least_rows_ ? rows : least_rows_;
  }
  [[nodiscard]] constexpr long pieces_of(long block) const {
    return ceil_div(rows_of(block), rows_per_piece(block));
  }
  /// No block has more pieces: partial sums lie so many pieces apart, block by block.
  [[nodiscard]] constexpr long pieces_apart() const {
    const bool is_part = blocks_.whole_count > 0;
    const long rows =
        num_sequences_ * ceil_div(is_part ? blocks_.whole_length : blocks_.seq_length,
                                  long{is_part ? blocks_.whole_count : blocks_.count});
    const long pieces = ceil_div(rows, least_rows_);
    return pieces < most_pieces_ ? pieces : most_pieces_;
  }
  /// Pieces for which there is room.
  [[nodiscard]] constexpr long num_slots() const { return num_blocks() * pieces_apart(); }
  /// Rows of the block that a piece takes; none behind the last piece.
  [[nodiscard]] constexpr IndexRange piece(long block, long index) const {
    const long step = rows_per_piece(block);
    const long rows = rows_of(block);
    const long begin = index * step < rows ? index * step : rows;
    return {begin, begin + step < rows ? begin + step : rows};
  }

  /// Walks the matrix rows of the rows [index, ...) of a block.
  class Walk {
   public:
    constexpr Walk(const TokenRows& rows, long block, long index)
        : seq_length_(rows.blocks_.seq_length), tokens_(rows.tokens_of(block)) {
      const long size = tokens_.size() > 0 ? tokens_.size() : 1;
      first_ = index / size * seq_length_;
      token_ = tokens_.begin + index % size;
    }
    [[nodiscard]] constexpr long row() const { return first_ + token_; }
    constexpr void advance() {
      if (++token_ == tokens_.end) {
        token_ = tokens_.begin;
        first_ += seq_length_;
      }
    }

   private:
    long seq_length_;
    IndexRange tokens_;
    long first_ = 0;
    long token_ = 0;
  };

 private:
  [[nodiscard]] constexpr IndexRange tokens_of(long block) const {
    return blocks_.tokens_of(block);
  }

  TokenBlocks blocks_;
  long num_sequences_;
  long least_rows_;
  long most_pieces_;
};

/// Rows of a piece of ColumnSum, which its contract names.
inline constexpr long kColumnSumRows = 32;

constexpr TokenRows column_sum_rows(long rows, const TokenBlocks& blocks) {
  return {rows, blocks, kColumnSumRows, 1L << 40};
}

/// Pieces of NormBackward: enough of them to fill a device, and partial sums that stay small beside the activations.
constexpr TokenRows norm_backward_rows(long rows, const TokenBlocks& blocks) {
  return {rows, blocks, 16, 1024};
}

}  // namespace lockstep
