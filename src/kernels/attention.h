// Causal attention with grouped-query heads, and the rotary position embedding before it.
#pragma once

#include "base/dropout_mask.h"
#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// Rotates each pair (i, i + head_dim/2) of every head of x in place by the angle of its position
/// (Su et al., "RoFormer", 2021; Hugging Face's half-split order). x is [tokens x heads*head_dim];
/// rows are sequences of `seq_length`, positions 0.. in each. cos and sin are [seq_length x
/// head_dim/2]. `inverse` rotates back: the backward pass.
struct Rotary {
  static constexpr const char* kName = "rotary";

  Matrix x;
  long head_dim = 0;
  long seq_length = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  bool inverse = false;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const Rotary& op);

/// Largest head_dim of attention: a block of each operand lives on the stack of a thread.
inline constexpr long kMaxHeadDim = 1024;

/// Head dimensions are padded to a multiple of this inside the kernels.
inline constexpr long kHeadDimMultiple = 16;

/// Sizes of one attention: rows of q, k, v are `batch` sequences of `seq_length` tokens; q has
/// `heads` heads of `head_dim` columns, k and v have `kv_heads`; head h reads kv head
/// h / (heads / kv_heads).
struct AttentionShape {
  long batch = 0;
  long seq_length = 0;
  long heads = 0;
  long kv_heads = 0;
  long head_dim = 0;
};

/// Dropout of the probabilities of an attention: queries are tokens, keys the elements of a mask. The
/// first sequence is sample `first_sample` of the global batch, the first head `first_head` of the layer.
struct AttentionDropout {
  DropoutSource source;
  long first_sample = 0;
  long first_head = 0;
};

/// out = (mask * softmax(q k^T / sqrt(head_dim), causal)) v, in blocks with an online softmax: the score
/// matrix is never whole (Dao et al., "FlashAttention", 2022). log_sum_exp, f32
/// [batch x heads x seq_length], is kept for the backward pass (may be null for inference).
/// Accumulation in f32; the probabilities are used in f32, but rounded to bf16 where tensor cores multiply
/// (CUDA, bf16, head_dim up to 128). Bits of a head depend on (seq_length, head_dim, dtype) and its masks
/// alone. log_sum_exp is of all keys, dropped or not.
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  static constexpr bool kCountsOperations = true;

  AttentionShape shape;
  Matrix q;
  Matrix k;
  Matrix v;
  Matrix out;
  float* log_sum_exp = nullptr;
  AttentionDropout dropout;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const AttentionForward& op);

/// Gradients of AttentionForward, deterministic: every sum has a fixed order; heads that share a
/// kv head are summed in head order in f32. Where tensor cores multiply, gradients of scores are rounded to bf16. dq, dk, dv are overwritten and overlap no operand.
/// Parallel over sequences and kv heads. Scratch: none when dk and dv can hold the sums
/// themselves, else an f32 copy of both.
struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  static constexpr bool kCountsOperations = true;

  AttentionShape shape;
  Matrix q;
  Matrix k;
  Matrix v;
  Matrix out;
  const float* log_sum_exp = nullptr;
  Matrix dout;
  Matrix dq;
  Matrix dk;
  Matrix dv;
  AttentionDropout dropout;  ///< as in the forward pass

  /// Whether dk and dv are f32 and need no masked tail, so that sums build up in them.
  [[nodiscard]] bool accumulates_in_place() const {
    return dk.dtype == DType::kF32 && shape.head_dim % kHeadDimMultiple == 0;
  }
  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const;
  /// log_sum_exp and the sum of dout * out of every query, padded.
  [[nodiscard]] std::size_t cuda_workspace_bytes() const;
};

void launch(Queue& queue, const AttentionBackward& op);

/// The CUDA backward pass pads each head's statistics of queries to a multiple of this.
inline constexpr long kStatisticsMultiple = 128;

}  // namespace lockstep
