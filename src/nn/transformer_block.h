// A transformer block (GPT-2's or Llama's): attention and feed-forward, each behind a norm.
#pragma once

#include <string>

#include "kernels/attention.h"
#include "kernels/norm.h"
#include "nn/linear.h"
#include "nn/parameter_table.h"
#include "nn/pass.h"

namespace lockstep {

/// Sizes and kinds that all blocks of a model share. Those per block are of one of `num_blocks`
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
  int num_blocks = 1;
  int num_layers = 1;

  [[nodiscard]] long kv_heads_per_block() const;
  [[nodiscard]] long heads_per_block() const;
  [[nodiscard]] long ffn_per_block() const;
  /// Columns of q, k and v of one tensor block.
  [[nodiscard]] long qkv_per_block() const;
  [[nodiscard]] TokenBlocks token_blocks() const { return {seq_length, num_blocks}; }
};

/// cos and sin of every position and pair, [seq_length x head_dim/2] each.
struct RotaryTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
};

/// x1 = x + proj(attention(norm1(x)));  out = x1 + down(f(up(norm2(x1)))).
class TransformerBlock {
 public:
  /// Declares the parameters of layer `index`, named "<prefix>ln_1.weight" and so on.
  TransformerBlock(const TransformerShape& shape, int index, ParameterTable& table);

  /// Writes out; pushes what `backward` needs (not x, which the caller keeps).
  struct Saved;
  void forward(Pass& pass, RotaryTable rotary, Matrix x, Matrix out, Saved& saved) const;

  /// Turns d, the gradient of out, into that of x, in place. Leaves the stack as it was. Reports the
  /// gradients of each linear layer as they become complete, from the last one to the first.
  void backward(Pass& pass, RotaryTable rotary, Matrix x, const Saved& saved, Matrix d) const;

  struct Saved {
    Matrix norm1;
    Matrix qkv;
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
  [[nodiscard]] Matrix attention_columns(Matrix attention, int block) const;
  [[nodiscard]] AttentionShape attention_shape(long rows) const;
  void rotate(Pass& pass, RotaryTable rotary, const HeadColumns& heads, bool inverse) const;
  void attention_forward(Pass& pass, RotaryTable rotary, const Saved& saved) const;
  void attention_backward(
      Pass& pass, RotaryTable rotary, const Saved& saved, Matrix dattention, Matrix dqkv) const;
  void feed_forward(Pass& pass, const Saved& saved) const;
  void feed_forward_backward(Pass& pass, const Saved& saved, Matrix dact, Matrix dup) const;
  [[nodiscard]] NormBackward norm_backward(const Pass& pass,
                                           NormParameters norm,
                                           BlockSum dy,
                                           Matrix x,
                                           const float* mean,
                                           const float* rstd,
                                           Matrix d) const;

  TransformerShape shape_;
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
