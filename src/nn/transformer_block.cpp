#include "nn/transformer_block.h"

#include <cmath>
#include <utility>

#include "base/integers.h"
#include "kernels/activation.h"
#include "kernels/reduce.h"
#include "nn/shared_heads.h"

namespace lockstep {
namespace {

constexpr double kInitialDeviation = 0.02;  // GPT-2's, and nanoGPT's for both families

// What joins the residual: a sum of products, and a bias that is still to be added (may be absent).
struct Branch {
  BlockSum sum;
  Matrix bias;
};

// Of the sum of `products` for own rows. Dropout works on the rounded sum, which takes the place of the first product.
Branch join(Pass& pass,
            const LayerDropout& dropout,
            DropoutSite site,
            const BlockSum& products,
            Matrix bias) {
  const BlockSum sum = sum_for_own_rows(pass, dropout.split, products, dropout.seq_length);
  if (!dropout.drops(pass)) {
    return {sum, bias};
  }
  const Matrix out = products.first.row_range(0, sum.first.rows);
  launch(pass.queue, CombineBlocks{.blocks = sum, .bias = bias, .out = out});
  return {BlockSum(dropout.apply(pass, site, out, out)), Matrix{}};
}

}  // namespace

long TransformerShape::ffn_per_block() const {
  return ceil_div(ffn, static_cast<long>(split.num_blocks));
}
long TransformerShape::qkv_per_block() const {
  return heads_per_block() * head_dim + 2 * head_split().key_columns_per_block();
}

TokenBlocks TransformerShape::token_blocks() const {
  if (!split.sequence) {
    return {.seq_length = seq_length, .count = split.num_blocks};
  }
  const IndexRange own = split.own_tokens(seq_length);
  return {.seq_length = own.size(),
          .count = split.local_blocks(),
          .whole_length = seq_length,
          .whole_count = split.num_blocks,
          .first_token = own.begin,
          .first_block = split.first_block()};
}

Matrix gain_of(const Pass& pass, int parameter) {
  return parameter < 0 ? Matrix{} : pass.weights.whole(parameter);
}

TransformerBlock::NormParameters TransformerBlock::add_norm(ParameterTable& table,
                                                            const std::string& name) const {
  NormParameters norm;
  norm.gain = table.add({.name = name + ".weight",
                         .shape = {shape_.hidden},
                         .initialisation = Initialisation::kOne,
                         .parts = {}});
  if (shape_.norm == NormKind::kLayer) {
    norm.bias = table.add({.name = name + ".bias", .shape = {shape_.hidden}, .parts = {}});
  }
  return norm;
}

LinearParameters TransformerBlock::add_linear(ParameterTable& table,
                                              const std::string& name,
                                              long out,
                                              long in,
                                              int split_dimension,
                                              std::vector<SplitPart> parts,
                                              double stddev) const {
  LinearParameters linear;
  linear.weight = table.add({.name = name + ".weight",
                             .shape = {out, in},
                             .initialisation = Initialisation::kNormal,
                             .scale = stddev,
                             .split_dimension = split_dimension,
                             .parts = parts});
  if (shape_.biases) {
    const bool split = split_dimension == 0;
    linear.bias = table.add({.name = name + ".bias",
                             .shape = {out},
                             .split_dimension = split ? 0 : -1,
                             .parts = split ? std::move(parts) : std::vector<SplitPart>{}});
  }
  return linear;
}

TransformerBlock::TransformerBlock(const TransformerShape& shape, int index, ParameterTable& table)
    : shape_(shape),
      dropout_{.probability = shape.dropout,
               .layer = index,
               .split = shape.split,
               .seq_length = shape.seq_length} {
  const std::string prefix = "layers." + std::to_string(index) + ".";
  const HeadSplit heads = shape.head_split();
  const SplitPart query{
      shape.heads * shape.head_dim, heads.heads_per_block() * shape.head_dim, heads.groups()};
  const SplitPart key{
      shape.kv_heads * shape.head_dim, heads.key_columns_per_block(), heads.groups()};
  const SplitPart ffn{shape.ffn, shape.ffn_per_block()};
  // Residual projections start smaller, by the number of additions to the residual (GPT-2).
  const double residual = kInitialDeviation / std::sqrt(2.0 * shape.num_layers);

  norm1_ = add_norm(table, prefix + "norm_1");
  qkv_ = add_linear(table,
                    prefix + "attention.qkv",
                    query.size + 2 * key.size,
                    shape.hidden,
                    0,
                    {query, key, key},
                    kInitialDeviation);
  projection_ = add_linear(
      table, prefix + "attention.projection", shape.hidden, query.size, 1, {query}, residual);
  norm2_ = add_norm(table, prefix + "norm_2");
  up_ = add_linear(table,
                   prefix + (shape.gated ? "ffn.gate_up" : "ffn.up"),
                   shape.gated ? 2 * shape.ffn : shape.ffn,
                   shape.hidden,
                   0,
                   shape.gated ? std::vector<SplitPart>{ffn, ffn} : std::vector<SplitPart>{ffn},
                   kInitialDeviation);
  down_ = add_linear(table, prefix + "ffn.down", shape.hidden, shape.ffn, 1, {ffn}, residual);
}

AttentionShape TransformerBlock::attention_shape(const HeadColumns& heads) const {
  return {heads.q.rows / shape_.seq_length,
          shape_.seq_length,
          heads.q.cols / shape_.head_dim,
          heads.k.cols / shape_.head_dim,
          shape_.head_dim};
}

TransformerBlock::HeadColumns TransformerBlock::head_columns(Matrix qkv, int block) const {
  const long query = shape_.heads_per_block() * shape_.head_dim;
  const long key = shape_.head_split().key_columns_per_block();
  const Matrix all = qkv.columns(block * shape_.qkv_per_block(), shape_.qkv_per_block());
  return {.all = all,
          .q = all.columns(0, query),
          .k = all.columns(query, key),
          .v = all.columns(query + key, key)};
}

TransformerBlock::HeadColumns TransformerBlock::attention_heads(const Saved& saved,
                                                                int block) const {
  HeadColumns heads = head_columns(saved.qkv, block);
  if (saved.shared_heads) {
    const HeadSplit split = shape_.head_split();
    const SharedHead shared = shared_head_of(split, saved.shared_heads, block);
    heads.q =
        heads.q.columns(0, split.heads_in(shape_.split.first_block() + block) * shape_.head_dim);
    heads.k = shared.key;
    heads.v = shared.value;
  }
  return heads;
}

Matrix TransformerBlock::attention_columns(Matrix attention, int block) const {
  const long query = shape_.heads_per_block() * shape_.head_dim;
  return attention.columns(block * query, query);
}

void TransformerBlock::rotate(Pass& pass, RotaryTable rotary, Matrix x, bool inverse) const {
  if (shape_.rotary) {
    launch(pass.queue,
           Rotary{.x = x,
                  .head_dim = shape_.head_dim,
                  .seq_length = shape_.seq_length,
                  .cos = rotary.cos,
                  .sin = rotary.sin,
                  .inverse = inverse});
  }
}

void TransformerBlock::prepare_heads(Pass& pass, RotaryTable rotary, const Saved& saved) const {
  for (int block = 0; block < shape_.split.local_blocks(); ++block) {
    const HeadColumns heads = head_columns(saved.qkv, block);
    if (qkv_.bias >= 0) {
      launch(pass.queue, BiasActivation{.x = heads.all, .bias = bias_of(pass, qkv_, block)});
    }
    rotate(pass,
           rotary,
           saved.shared_heads ? heads.q : heads.all.columns(0, heads.q.cols + heads.k.cols),
           false);
  }
  if (saved.shared_heads) {
    const HeadSplit split = shape_.head_split();
    gather_shared_heads(pass, split, shape_.split, saved.qkv, saved.shared_heads);
    for (int block = 0; block < shape_.split.local_blocks(); block += split.sharers()) {
      rotate(pass, rotary, shared_head_of(split, saved.shared_heads, block).key, false);
    }
  }
}

void TransformerBlock::attend(Pass& pass, const Saved& saved) const {
  const long rows = saved.qkv.rows;
  if (saved.shared_heads && shape_.head_split().is_padded()) {
    // A padded query head would see real values: the weights behind it would get a gradient.
    launch(pass.queue, FillZero{.data = saved.attention.data, .bytes = saved.attention.bytes()});
  }
  for (int block = 0; block < shape_.split.local_blocks(); ++block) {
    const HeadColumns heads = attention_heads(saved, block);
    if (heads.q.cols == 0) {
      continue;
    }
    launch(
        pass.queue,
        AttentionForward{.shape = attention_shape(heads),
                         .q = heads.q,
                         .k = heads.k,
                         .v = heads.v,
                         .out = attention_columns(saved.attention, block),
                         .log_sum_exp = saved.log_sum_exp + block * shape_.heads_per_block() * rows,
                         .dropout = dropout_.of_heads(pass, first_head(block))});
  }
}

AttentionBackward TransformerBlock::attention_gradient(const Pass& pass,
                                                       const Saved& saved,
                                                       const HeadColumns& heads,
                                                       Matrix dattention,
                                                       int block) const {
  return {.shape = attention_shape(heads),
          .q = heads.q,
          .k = heads.k,
          .v = heads.v,
          .out = attention_columns(saved.attention, block),
          .log_sum_exp = saved.log_sum_exp + block * shape_.heads_per_block() * saved.qkv.rows,
          .dout = attention_columns(dattention, block),
          .dq = {},
          .dk = {},
          .dv = {},
          .dropout = dropout_.of_heads(pass, first_head(block))};
}

void TransformerBlock::attention_backward(
    Pass& pass, RotaryTable rotary, const Saved& saved, Matrix dattention, Matrix dqkv) const {
  if (saved.shared_heads) {
    shared_attention_backward(pass, rotary, saved, dattention, dqkv);
    return;
  }
  for (int block = 0; block < shape_.split.local_blocks(); ++block) {
    const HeadColumns heads = head_columns(saved.qkv, block);
    const HeadColumns d = head_columns(dqkv, block);
    AttentionBackward op = attention_gradient(pass, saved, heads, dattention, block);
    op.dq = d.q;
    op.dk = d.k;
    op.dv = d.v;
    launch(pass.queue, op);
    rotate(pass, rotary, d.all.columns(0, d.q.cols + d.k.cols), true);
  }
}

void TransformerBlock::shared_attention_backward(
    Pass& pass, RotaryTable rotary, const Saved& saved, Matrix dattention, Matrix dqkv) const {
  const StackScope scratch(pass.scratch());
  const long rows = saved.qkv.rows;
  const HeadSplit split = shape_.head_split();
  const int blocks = shape_.split.local_blocks();
  const BlockSum gradients = push_blocks(pass, dqkv.dtype, rows, 2 * shape_.head_dim, blocks);
  if (split.is_padded()) {  // written below without the padding
    launch(pass.queue, FillZero{.data = dqkv.data, .bytes = dqkv.bytes()});
  }
  for (int block = 0; block < blocks; ++block) {
    const HeadColumns heads = attention_heads(saved, block);
    const Matrix both = gradients.block(block);
    if (heads.q.cols == 0) {
      launch(pass.queue, FillZero{.data = both.data, .bytes = both.bytes()});
      continue;
    }
    AttentionBackward op = attention_gradient(pass, saved, heads, dattention, block);
    op.dq = head_columns(dqkv, block).q.columns(0, heads.q.cols);
    op.dk = both.columns(0, shape_.head_dim);
    op.dv = both.columns(shape_.head_dim, shape_.head_dim);
    launch(pass.queue, op);
    rotate(pass, rotary, op.dq, true);
    rotate(pass, rotary, op.dk, true);  // before the sum, whose columns may lie on several ranks
  }
  scatter_shared_heads(pass, split, shape_.split, gradients, dqkv);
}

void TransformerBlock::activate(Pass& pass, const Saved& saved, bool adds_bias) const {
  const long ffn = shape_.ffn_per_block();
  for (int block = 0; block < shape_.split.local_blocks(); ++block) {
    const Matrix act = saved.act.columns(block * ffn, ffn);
    const Matrix bias = adds_bias ? bias_of(pass, up_, block) : Matrix{};
    if (!shape_.gated) {
      launch(pass.queue,
             BiasActivation{.activation = Activation::kGelu,
                            .x = saved.up.columns(block * ffn, ffn),
                            .bias = bias,
                            .y = act});
      continue;
    }
    const Matrix up = saved.up.columns(2L * block * ffn, 2 * ffn);
    if (bias) {
      launch(pass.queue, BiasActivation{.x = up, .bias = bias});
    }
    launch(pass.queue, Swiglu{.gate = up.columns(0, ffn), .up = up.columns(ffn, ffn), .y = act});
  }
}

void TransformerBlock::feed_forward_backward(Pass& pass,
                                             const Saved& saved,
                                             Matrix dact,
                                             Matrix dup) const {
  if (!shape_.gated) {
    launch(
        pass.queue,
        ActivationBackward{.activation = Activation::kGelu, .x = saved.up, .dy = dact, .dx = dup});
    return;
  }
  const long ffn = shape_.ffn_per_block();
  for (int block = 0; block < shape_.split.local_blocks(); ++block) {
    const Matrix up = saved.up.columns(2L * block * ffn, 2 * ffn);
    const Matrix d = dup.columns(2L * block * ffn, 2 * ffn);
    launch(pass.queue,
           SwigluBackward{.gate = up.columns(0, ffn),
                          .up = up.columns(ffn, ffn),
                          .dy = dact.columns(block * ffn, ffn),
                          .dgate = d.columns(0, ffn),
                          .dup = d.columns(ffn, ffn)});
  }
}

void TransformerBlock::push_kept(
    const Pass& pass, ActivationStack& stack, long own_rows, long rows, Saved& saved) const {
  const DType dtype = pass.weights.dtype();
  const long blocks = shape_.split.local_blocks();
  saved.norm1 = stack.push(dtype, own_rows, shape_.hidden);
  saved.qkv = stack.push(dtype, rows, blocks * shape_.qkv_per_block());
  const HeadSplit heads = shape_.head_split();
  if (heads.shares()) {
    const long count = shared_heads_of(heads, shape_.split);
    saved.shared_heads = stack.push(dtype, rows, count * 2 * shape_.head_dim);
  }
  saved.x1 = stack.push(dtype, own_rows, shape_.hidden);
  saved.norm2 = stack.push(dtype, own_rows, shape_.hidden);
  saved.up = stack.push(dtype, rows, (shape_.gated ? 2 : 1) * blocks * shape_.ffn_per_block());
  const bool layer_norm = shape_.norm == NormKind::kLayer;
  saved.mean1 = layer_norm ? stack.push_array<float>(own_rows) : nullptr;
  saved.rstd1 = stack.push_array<float>(own_rows);
  saved.mean2 = layer_norm ? stack.push_array<float>(own_rows) : nullptr;
  saved.rstd2 = stack.push_array<float>(own_rows);
}

void TransformerBlock::push_recomputed(const Pass& pass,
                                       ActivationStack& stack,
                                       long rows,
                                       Saved& saved) const {
  const DType dtype = pass.weights.dtype();
  const long blocks = shape_.split.local_blocks();
  const long heads = blocks * shape_.heads_per_block();
  saved.attention = stack.push(dtype, rows, heads * shape_.head_dim);
  saved.act = stack.push(dtype, rows, blocks * shape_.ffn_per_block());
  saved.log_sum_exp = stack.push_array<float>(heads * rows);
}

void TransformerBlock::forward_to_activation(Pass& pass,
                                             RotaryTable rotary,
                                             Matrix x,
                                             const Saved& saved) const {
  const StackScope scratch(pass.scratch());
  const BlockSum products =
      push_blocks(pass, x.dtype, saved.qkv.rows, shape_.hidden, shape_.split.local_blocks());
  launch(pass.queue,
         NormForward{.kind = shape_.norm,
                     .x = BlockSum(x),
                     .gain = gain_of(pass, norm1_.gain),
                     .bias = gain_of(pass, norm1_.bias),
                     .epsilon = shape_.epsilon,
                     .y = saved.norm1,
                     .mean = saved.mean1,
                     .rstd = saved.rstd1});
  column_linear_forward(pass, qkv_, all_rows(pass, saved.norm1), saved.qkv);
  prepare_heads(pass, rotary, saved);
  attend(pass, saved);
  row_linear_forward(pass, projection_, saved.attention, products);
  const Branch branch =
      join(pass, dropout_, DropoutSite::kProjection, products, bias_of(pass, projection_, 0));
  launch(pass.queue,
         NormForward{.kind = shape_.norm,
                     .x = branch.sum,
                     .x_bias = branch.bias,
                     .residual = x,
                     .sum = saved.x1,
                     .gain = gain_of(pass, norm2_.gain),
                     .bias = gain_of(pass, norm2_.bias),
                     .epsilon = shape_.epsilon,
                     .y = saved.norm2,
                     .mean = saved.mean2,
                     .rstd = saved.rstd2});
  column_linear_forward(pass, up_, all_rows(pass, saved.norm2), saved.up);
  activate(pass, saved, true);
}

void TransformerBlock::forward(
    Pass& pass, RotaryTable rotary, Matrix x, Matrix out, Saved& saved) const {
  const long rows = x.rows / shape_.split.own_tokens(shape_.seq_length).size() * shape_.seq_length;
  // What is kept goes below what is not, where both share a stack.
  if (pass.recompute != Recompute::kFull) {
    push_kept(pass, pass.stack, x.rows, rows, saved);
  }
  if (pass.recompute == Recompute::kNone) {
    push_recomputed(pass, pass.stack, rows, saved);
  }
  const StackScope scratch(pass.scratch());
  if (pass.recompute == Recompute::kFull) {
    push_kept(pass, pass.scratch(), x.rows, rows, saved);
  }
  if (pass.recompute != Recompute::kNone) {
    push_recomputed(pass, pass.scratch(), rows, saved);
  }
  forward_to_activation(pass, rotary, x, saved);
  const BlockSum products =
      push_blocks(pass, x.dtype, rows, shape_.hidden, shape_.split.local_blocks());
  row_linear_forward(pass, down_, saved.act, products);
  const Branch branch =
      join(pass, dropout_, DropoutSite::kFeedForward, products, bias_of(pass, down_, 0));
  launch(
      pass.queue,
      CombineBlocks{.blocks = branch.sum, .bias = branch.bias, .residual = saved.x1, .out = out});
}

void TransformerBlock::norm_backward(
    Pass& pass, const Half& half, const BlockSum& dy, Matrix d, Matrix dx) const {
  norm_backward_over_ranks(pass,
                           shape_.split,
                           {.kind = shape_.norm,
                            .dy = dy,
                            .x = half.x,
                            .gain = gain_of(pass, half.norm.gain),
                            .mean = half.mean,
                            .rstd = half.rstd,
                            .dresidual = d,
                            .dx = dx,
                            .token_blocks = shape_.token_blocks()},
                           {.gain = half.norm.gain,
                            .bias = half.norm.bias,
                            .bias_before = shape_.split.sequence ? half.last.bias : -1,
                            .dbefore = half.dbranch,
                            .late = half.late},
                           shape_.seq_length);
}

void TransformerBlock::feed_forward_half_backward(Pass& pass,
                                                  const Saved& saved,
                                                  Matrix dbranch,
                                                  BlockSum products) const {
  const StackScope scratch(pass.scratch());
  const DType dtype = dbranch.dtype;
  const Matrix dup =
      saved.late.dup ? saved.late.dup : pass.scratch().push(dtype, saved.up.rows, saved.up.cols);
  const Matrix dact =
      shape_.gated ? pass.scratch().push(dtype, saved.up.rows, saved.act.cols) : dup;  // in place
  row_linear_backward(
      pass, without_bias(down_), saved.act, all_rows(pass, dbranch), dact, shape_.token_blocks());
  if (!shape_.split.sequence) {
    pass.gradients_complete_from(down_.weight);
  }
  if (pass.finds_inputs()) {
    feed_forward_backward(pass, saved, dact, dup);
    pass.poll();
  }
  column_linear_backward(pass, up_, weight_rows(pass, saved.norm2), dup, products);
}

void TransformerBlock::attention_half_backward(
    Pass& pass, RotaryTable rotary, const Saved& saved, Matrix dbranch, BlockSum products) const {
  const StackScope scratch(pass.scratch());
  const DType dtype = dbranch.dtype;
  const Matrix dqkv = saved.late.dqkv ? saved.late.dqkv
                                      : pass.scratch().push(dtype, saved.qkv.rows, saved.qkv.cols);
  const Matrix dattention = pass.scratch().push(dtype, saved.qkv.rows, saved.attention.cols);
  row_linear_backward(pass,
                      without_bias(projection_),
                      saved.attention,
                      all_rows(pass, dbranch),
                      dattention,
                      shape_.token_blocks());
  if (!shape_.split.sequence) {
    pass.gradients_complete_from(projection_.weight);
  }
  if (pass.finds_inputs()) {
    attention_backward(pass, rotary, saved, dattention, dqkv);
    pass.poll();
  }
  column_linear_backward(pass, qkv_, weight_rows(pass, saved.norm1), dqkv, products);
}

void TransformerBlock::push_late(
    Pass& pass, const Saved& saved, long own_rows, long rows, Late& late) const {
  const DType dtype = pass.weights.dtype();
  late.dup = pass.stack.push(dtype, rows, saved.up.cols);
  late.dx1 = pass.stack.push(dtype, own_rows, shape_.hidden);
  late.dqkv = pass.stack.push(dtype, rows, saved.qkv.cols);
  late.norm1 = push_late_sums(pass, shape_.hidden);
  late.norm2 = push_late_sums(pass, shape_.hidden);
}

// What forward did not keep. The input part needs no outputs of activation functions.
void TransformerBlock::recompute(
    Pass& pass, RotaryTable rotary, Matrix x, long rows, Saved& saved) const {
  if (pass.recompute == Recompute::kFull) {
    push_kept(pass, pass.scratch(), x.rows, rows, saved);
    push_recomputed(pass, pass.scratch(), rows, saved);
    forward_to_activation(pass, rotary, x, saved);
  } else if (pass.recompute == Recompute::kSelective) {
    push_recomputed(pass, pass.scratch(), rows, saved);
    attend(pass, saved);
    if (pass.finds_weights()) {
      activate(pass, saved, false);
    }
  }
}

void TransformerBlock::backward(
    Pass& pass, RotaryTable rotary, Matrix x, Saved& kept, Matrix d, Matrix dx) const {
  const StackScope scratch(pass.scratch());
  const long rows = x.rows / shape_.split.own_tokens(shape_.seq_length).size() * shape_.seq_length;
  if (pass.part == BackwardPart::kWhole) {
    kept.late = {.dx1 = dx};
  } else if (pass.part == BackwardPart::kInput) {
    push_late(pass, kept, x.rows, rows, kept.late);
  }
  Saved saved = kept;
  recompute(pass, rotary, x, rows, saved);
  BlockSum products;
  if (pass.finds_inputs()) {
    products = push_blocks(pass, x.dtype, rows, shape_.hidden, shape_.split.local_blocks());
  }
  const Matrix room =
      dropout_.drops(pass) ? pass.scratch().push(d.dtype, x.rows, shape_.hidden) : Matrix{};
  Matrix dbranch = dropout_.apply(pass, DropoutSite::kFeedForward, d, room);
  feed_forward_half_backward(pass, saved, dbranch, products);
  norm_backward(pass,
                {.norm = norm2_,
                 .last = down_,
                 .x = saved.x1,
                 .mean = saved.mean2,
                 .rstd = saved.rstd2,
                 .late = saved.late.norm2,
                 .dbranch = dbranch},
                products,
                d,
                saved.late.dx1);
  pass.gradients_complete_from(norm2_.gain);
  dbranch = dropout_.apply(pass, DropoutSite::kProjection, saved.late.dx1, room);
  attention_half_backward(pass, rotary, saved, dbranch, products);
  norm_backward(pass,
                {.norm = norm1_,
                 .last = projection_,
                 .x = x,
                 .mean = saved.mean1,
                 .rstd = saved.rstd1,
                 .late = saved.late.norm1,
                 .dbranch = dbranch},
                products,
                saved.late.dx1,
                dx);
  pass.gradients_complete_from(norm1_.gain);
}

}  // namespace lockstep
