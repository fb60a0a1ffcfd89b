// Layer norm and RMS norm over the features of each token, fused with what comes before them.
#pragma once

#include <cstdint>

#include "base/integers.h"
#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "kernels/matmul.h"
#include "tensor/matrix.h"

namespace lockstep {

/// kLayer: (x - mean) / sqrt(var + epsilon) * gain + bias (Ba et al., 2016; biased variance).
/// kRms: x / sqrt(mean(x^2) + epsilon) * gain (Zhang & Sennrich, 2019).
enum class NormKind : std::uint8_t { kLayer, kRms };

/// How sums over tokens (gradients of gains and biases) are cut: rows are sequences of
/// `seq_length` tokens; block w of `count` holds the tokens part_of(seq_length, count, w) of every
/// sequence. Block sums are combined by the aligned tree, so that splitting the sequence over ranks
/// changes no bit. Within a block rows are summed in fixed pieces, by shape.
struct TokenBlocks {
  long seq_length = 1;
  int count = 1;
  /// Of sequences that are cut over ranks: the whole length and number of blocks (0: as above), and
  /// the first token and block that are here.
  long whole_length = 0;
  int whole_count = 0;
  long first_token = 0;
  int first_block = 0;

  /// The tokens of a block that is here, counted from the first token that is here.
  [[nodiscard]] constexpr IndexRange tokens_of(long block) const {
    const bool is_part = whole_count > 0;
    const IndexRange tokens = part_of(is_part ? whole_length : seq_length,
                                      is_part ? whole_count : count,
                                      block + (is_part ? first_block : 0));
    const long first = is_part ? first_token : 0;
    return {tokens.begin - first, tokens.end - first};
  }
};

/// sum = round(tree sum of x's blocks + x_bias + residual); y = norm(sum) * gain (+ bias).
/// The norm is computed in f32 from the rounded sum. Without x_bias, residual and further blocks
/// `sum` may be absent: x is then normalised as it is. mean (absent for kRms) and rstd hold one
/// f32 a row for the backward pass; both may be null. gain and bias are one row. All operands have
/// the dtype of y, but the blocks of x may be f32 where y is bf16 (partial sums of a split product).
/// sum may alias residual or the first block.
struct NormForward {
  static constexpr const char* kName = "norm_forward";

  NormKind kind = NormKind::kLayer;
  BlockSum x;
  Matrix x_bias;
  Matrix residual;
  Matrix sum;
  Matrix gain;
  Matrix bias;
  double epsilon = 1e-5;
  Matrix y;
  float* mean = nullptr;
  float* rstd = nullptr;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const NormForward& op);

/// dx = round(dresidual + gradient of the norm), where x is what was normalised (the rounded sum)
/// and dresidual (may be absent; dx may alias it or dy) reaches x past the norm. dgain and dbias
/// (f32, dbias null where there is no bias) get the sums over tokens, added to what is there if
/// `accumulate`. The blocks of dy may be f32 where the rest is bf16. token_blocks.seq_length divides
/// the number of rows.
struct NormBackward {
  static constexpr const char* kName = "norm_backward";

  NormKind kind = NormKind::kLayer;
  BlockSum dy;  ///< tree-summed and rounded to its dtype first, if there are several blocks
  Matrix x;
  Matrix gain;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  Matrix dresidual;
  Matrix dx;
  float* dgain = nullptr;
  float* dbias = nullptr;
  bool accumulate = false;
  TokenBlocks token_blocks;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const;
  [[nodiscard]] std::size_t cuda_workspace_bytes() const;
};

void launch(Queue& queue, const NormBackward& op);

}  // namespace lockstep
