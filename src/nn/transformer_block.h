// A transformer block (GPT-2's or Llama's): attention and feed-forward, each behind a norm.
#pragma once

#include <string>

#include "kernels/attention.h"
#include "kernels/norm.h"
#include "nn/dropout.h"
#include "nn/head_split.h"
#include "nn/linear.h"
#include "nn/parameter_table.h"
#include "nn/pass.h"
#include "nn/split_rows.h"

namespace lockstep {

/// Sizes and kinds that all blocks of a model share. Those per block are of one of split.num_blocks
/// tensor blocks, padded where the model's own do not divide.
struct TransformerShape {
  NormKind norm = NormKind::kLayer;
  bool biases = true;   ///< of linear layers and norms
  bool rotary = false;  ///< else positions were added to the embedding
  bool gated = false;   ///< SwiGLU feed-forward, else GELU
  long hidden = 0;
  long heads = 0;
  long kv_heads = 0;
  long head_dim = 0;
  long ffn = 0;
  long seq_length = 0;
  double epsilon = 1e-5;
  double dropout = 0;  ///< probability, of passes that drop (Pass::place)
  TensorSplit split;
  int num_layers = 1;

  [[nodiscard]] HeadSplit head_split() const {
    return {heads, kv_heads, head_dim, split.num_blocks};
  }
  [[nodiscard]] long heads_per_block() const { return head_split().heads_per_block(); }
  [[nodiscard]] long ffn_per_block() const;
  /// Columns of q, k and v of one tensor block.
  [[nodiscard]] long qkv_per_block() const;
  /// How sums over the tokens that norms and residuals see are cut.
  [[nodiscard]] TokenBlocks token_blocks() const;
};

/// cos and sin of every position and pair, [seq_length x head_dim/2] each.
struct RotaryTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

/// x1 = x + drop(proj(attention(norm1(x))));  out = x1 + drop(down(f(up(norm2(x1))))).
class TransformerBlock {
 public:
  /// Declares the parameters of layer `index`, named "<prefix>ln_1.weight" and so on.
  TransformerBlock(const TransformerShape& shape, int index, ParameterTable& table);

  /// Writes out; pushes what `backward` needs as pass.recompute says (not x, which the caller keeps). x
  /// and out have the rows that norms work on (TensorSplit::own_tokens). Collective over the tensor
  /// group, as is `backward`.
  struct Saved;
  void forward(Pass& pass, RotaryTable rotary, Matrix x, Matrix out, Saved& saved) const;

  /// Turns d, the gradient of out, into dx, that of x; both may be one matrix, but between the parts of a
  /// backward pass d stays as it is, and the weight part does not look at dx. Leaves the stack as it was,
  /// the input part with what it keeps. Reports the gradients of each linear layer as they become
  /// complete, from the last one to the first.
  void backward(Pass& pass, RotaryTable rotary, Matrix x, Saved& kept, Matrix d, Matrix dx) const;

  /// From the input part of a backward pass to its weight part.
  struct Late {
    Matrix dup;
    Matrix dx1;
    Matrix dqkv;
    float* norm1 = nullptr;  ///< NormSums::late
    float* norm2 = nullptr;
  };
  struct Saved {
    Matrix norm1;
    Matrix qkv;
    /// Keys and values, whole, of heads that several blocks share (nn/shared_heads.h); else absent.
    Matrix shared_heads;
    Matrix attention;
    Matrix x1;
    Matrix norm2;
    Matrix up;   ///< before the activation (gate and up of each tensor block side by side if gated)
    Matrix act;  ///< after it
    float* mean1 = nullptr;
    float* rstd1 = nullptr;
    float* mean2 = nullptr;
    float* rstd2 = nullptr;
    float* log_sum_exp = nullptr;
    Late late;
  };

 private:
  struct NormParameters {
    int gain = -1;
    int bias = -1;
  };

  [[nodiscard]] NormParameters add_norm(ParameterTable& table, const std::string& name) const;
  [[nodiscard]] LinearParameters add_linear(ParameterTable& table,
                                            const std::string& name,
                                            long out,
                                            long in,
                                            int split_dimension,
                                            std::vector<SplitPart> parts,
                                            double stddev) const;
  /// The columns of one tensor block in a q, k, v matrix.
  struct HeadColumns {
    Matrix all;
    Matrix q;
    Matrix k;
    Matrix v;
  };
  [[nodiscard]] HeadColumns head_columns(Matrix qkv, int block) const;
  /// As attention reads them: without padding, and k and v whole, where blocks share heads.
  [[nodiscard]] HeadColumns attention_heads(const Saved& saved, int block) const;
  [[nodiscard]] Matrix attention_columns(Matrix attention, int block) const;
  [[nodiscard]] AttentionShape attention_shape(const HeadColumns& heads) const;
  /// Of a local block, counted over the whole layer.
  [[nodiscard]] long first_head(int block) const {
    return shape_.head_split().first_head(shape_.split.first_block() + block);
  }
  void rotate(Pass& pass, RotaryTable rotary, Matrix x, bool inverse) const;
  void push_kept(
      const Pass& pass, ActivationStack& stack, long own_rows, long rows, Saved& saved) const;
  void push_recomputed(const Pass& pass, ActivationStack& stack, long rows, Saved& saved) const;
  /// Everything up to the second norm and the activation function: all but the last product.
  void forward_to_activation(Pass& pass, RotaryTable rotary, Matrix x, const Saved& saved) const;
  /// Adds the biases of q, k, v and rotates them, in place.
  void prepare_heads(Pass& pass, RotaryTable rotary, const Saved& saved) const;
  void attend(Pass& pass, const Saved& saved) const;
  /// Without its outputs.
  [[nodiscard]] AttentionBackward attention_gradient(const Pass& pass,
                                                     const Saved& saved,
                                                     const HeadColumns& heads,
                                                     Matrix dattention,
                                                     int block) const;
  void attention_backward(
      Pass& pass, RotaryTable rotary, const Saved& saved, Matrix dattention, Matrix dqkv) const;
  void shared_attention_backward(
      Pass& pass, RotaryTable rotary, const Saved& saved, Matrix dattention, Matrix dqkv) const;
  /// `adds_bias`: for the first time; what the activation function reads is kept with its bias.
  void activate(Pass& pass, const Saved& saved, bool adds_bias) const;
  void feed_forward_backward(Pass& pass, const Saved& saved, Matrix dact, Matrix dup) const;
  /// Exchanges where blocks or sequences are split over ranks (nn/split_rows.h).
  [[nodiscard]] Matrix all_rows(Pass& pass, Matrix x) const {
    return gather_all_rows(pass, shape_.split, x, shape_.seq_length);
  }
  /// All rows of what the gradient of a weight is a product with; absent where the pass finds none.
  [[nodiscard]] Matrix weight_rows(Pass& pass, Matrix x) const {
    return pass.finds_weights() ? all_rows(pass, x) : Matrix{};
  }
  void push_late(Pass& pass, const Saved& saved, long own_rows, long rows, Late& late) const;
  void recompute(Pass& pass, RotaryTable rotary, Matrix x, long rows, Saved& saved) const;
  /// Of the halves, dbranch is the gradient of what joined the residual.
  void feed_forward_half_backward(Pass& pass,
                                  const Saved& saved,
                                  Matrix dbranch,
                                  BlockSum products) const;
  void attention_half_backward(
      Pass& pass, RotaryTable rotary, const Saved& saved, Matrix dbranch, BlockSum products) const;
  /// The half of the block behind a norm: `norm` before, `last` its last linear layer, whose output
  /// joins the residual.
  struct Half {
    NormParameters norm;
    LinearParameters last;
    Matrix x;
    const float* mean = nullptr;
    const float* rstd = nullptr;
    float* late = nullptr;
    Matrix dbranch;  ///< the gradient of the output of `last`
  };
  /// The gradient past `half`, and those of its norm and of the bias of its last layer. `dy` has one
  /// product a block for all rows, d is the gradient of the half's output, dx that of x.
  void norm_backward(Pass& pass, const Half& half, const BlockSum& dy, Matrix d, Matrix dx) const;
  [[nodiscard]] LinearParameters without_bias(LinearParameters linear) const {
    // The sum over tokens of a split sequence is taken together with those of the norm.
    return {linear.weight, shape_.split.sequence ? -1 : linear.bias};
  }

  TransformerShape shape_;
  LayerDropout dropout_;
  NormParameters norm1_;
  NormParameters norm2_;
  LinearParameters qkv_;
  LinearParameters projection_;
  LinearParameters up_;
  LinearParameters down_;
};

/// A norm without anything fused before it, as used at the end of the model.
Matrix gain_of(const Pass& pass, int parameter);

}  // namespace lockstep
