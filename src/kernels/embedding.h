// Token and position embeddings.
#pragma once

#include <cstdint>

#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// A table whose rows lie in blocks: row r is row r % rows_per_block of block r / rows_per_block,
/// and blocks are block_stride elements apart (the blocks of a split vocabulary).
struct BlockedTable {
  void* data = nullptr;
  DType dtype = DType::kF32;
  long cols = 0;
  long rows_per_block = 0;
  long block_stride = 0;

  /// Element index of the first column of `row`.
  [[nodiscard]] long offset(long row) const {
    return row / rows_per_block * block_stride + row % rows_per_block * cols;
  }
};

/// out[i] = round(table[tokens[i]] + positions[i % seq_length]); positions may be absent.
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

/// Gradients in f32: dtable[token] += dout of each of its occurrences in token order;
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
};

void launch(Queue& queue, const EmbeddingBackward& op);

}  // namespace lockstep
