// Token and position embeddings.
#pragma once

#include <cstdint>

#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// A table whose rows lie in blocks (of a split vocabulary), block_stride elements apart. It holds
/// the rows [first_row, first_row + num_rows): its row r is row (r - first_row) % rows_per_block of
/// block (r - first_row) / rows_per_block.
struct BlockedTable {
  void* data = nullptr;
  DType dtype = DType::kF32;
  long cols = 0;
  long rows_per_block = 0;
  long block_stride = 0;
  long first_row = 0;
  long num_rows = 0;

  [[nodiscard]] constexpr bool holds(long row) const {
    return row >= first_row && row - first_row < num_rows;
  }
  /// Element index of the first column of `row`, which it holds.
  [[nodiscard]] constexpr long offset(long row) const {
    const long own = row - first_row;
    return own / rows_per_block * block_stride + own % rows_per_block * cols;
  }
};

/// out[i] = round(table[tokens[i]] + positions[i % seq_length]), where rows that the table does not
/// hold count as zeros; positions may be absent.
/// Every token is below the number of rows (checked when the data was opened).
struct Embedding {
  static constexpr const char* kName = "embedding";

  const std::int32_t* tokens = nullptr;
  BlockedTable table;
  Matrix positions;
  long seq_length = 1;
  Matrix out;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const Embedding& op);

/// How a CUDA device sorts rows by token: tiles of rows, and digits of the tokens' numbers.
inline constexpr long kEmbeddingTileRows = 2048;
inline constexpr int kEmbeddingDigitBits = 8;
inline constexpr int kEmbeddingDigits = 1 << kEmbeddingDigitBits;

/// Gradients in f32: dtable[token] += dout of each of its occurrences in token order, unless another
/// rank holds it;
/// dpositions[p] += dout of position p in the order of the sequences. dtable must have been
/// filled (with zeros, at the first micro-batch) before; dpositions may be absent.
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";

  const std::int32_t* tokens = nullptr;
  Matrix dout;
  BlockedTable dtable;
  Matrix dpositions;
  long seq_length = 1;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
  [[nodiscard]] long num_tiles() const;
  [[nodiscard]] std::size_t cuda_workspace_bytes() const;
};

void launch(Queue& queue, const EmbeddingBackward& op);

}  // namespace lockstep
