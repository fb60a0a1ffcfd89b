// Sums: over tokens, over buffers of several owners, and of squares.
#pragma once

#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "kernels/norm.h"
#include "tensor/matrix.h"

namespace lockstep {

/// out[c] (+)= sum over rows of x[r, c] in f32, cut as TokenBlocks says: gradients of biases.
/// Rows of a block are summed in pieces of 32, the pieces by the aligned tree, then the blocks.
/// x.rows is a multiple of token_blocks.seq_length.
struct ColumnSum {
  static constexpr const char* kName = "column_sum";

  Matrix x;
  float* out = nullptr;
  bool accumulate = false;
  TokenBlocks token_blocks;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const;
  [[nodiscard]] std::size_t cuda_workspace_bytes() const;
};

void launch(Queue& queue, const ColumnSum& op);

/// Pointers to inputs and outputs of a SumTree that fit into a CUDA kernel's parameters.
inline constexpr int kSumTreeParameters = 256;

/// outputs[j][i] = tree sum over t of inputs[t][i], for all j: the aligned tree over num_inputs
/// leaves (at most 65,536), in f32. `inputs` and `outputs` are arrays of the host. Outputs may be any of the inputs. No multiple of anything is asked of count;
/// cutting the range anywhere leaves the bits.
struct SumTree {
  static constexpr const char* kName = "sum_tree";

  const float* const* inputs = nullptr;
  int num_inputs = 0;
  float* const* outputs = nullptr;
  int num_outputs = 0;
  long count = 0;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
  [[nodiscard]] std::size_t cuda_workspace_bytes() const;
};

void launch(Queue& queue, const SumTree& op);

/// Elements of a chunk of the flat buffers: norms are sums of chunk sums.
inline constexpr long kChunkElements = 4096;

/// chunk_sums[j] = sum of squares, in f64, of chunk j of x; count is a multiple of kChunkElements.
/// The order within a chunk is the same for every instruction set.
struct SquaredSums {
  static constexpr const char* kName = "squared_sums";

  const float* x = nullptr;
  long count = 0;
  double* chunk_sums = nullptr;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const SquaredSums& op);

/// Sets `bytes` bytes to zero.
struct FillZero {
  static constexpr const char* kName = "fill_zero";

  void* data = nullptr;
  std::size_t bytes = 0;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const FillZero& op);

/// to[i] = round(from[i]) to bf16, to nearest even.
struct CastToBFloat16 {
  static constexpr const char* kName = "cast_to_bfloat16";

  const float* from = nullptr;
  void* to = nullptr;
  long count = 0;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const CastToBFloat16& op);

}  // namespace lockstep
