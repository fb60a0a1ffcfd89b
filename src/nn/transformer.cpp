#include "nn/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/integers.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/reduce.h"
#include "nn/dropout.h"
#include "nn/transformer_block.h"
#include "nn/transformer_sizes.h"

namespace lockstep {
namespace {

constexpr double kInitialDeviation = 0.02;

// Cross entropy over a vocabulary whose blocks may lie on several ranks: they exchange two numbers a
// row and block, never the logits.
void vocabulary_cross_entropy(Pass& pass, SoftmaxCrossEntropy op) {
  TensorGroup* const group = pass.tensor;
  if (group != nullptr) {
    const long rows = op.logits.rows;
    launch(pass.queue, ClassMaxima{.of = op, .maxima = group->gather_part(rows)});
    const StackScope scratch(pass.scratch());
    auto* largest = pass.scratch().push_array<float>(rows);
    const float* maxima = group->gather(rows);
    const long count = rows * (op.blocks + 1);
    launch(pass.queue,
           ClassSums{.of = op,
                     .maxima = maxima,
                     .num_parts = group->size(),
                     .largest = largest,
                     .sums = group->gather_part(count)});
    op.statistics = {.parts = group->size(), .maxima = largest, .sums = group->gather(count)};
    launch(pass.queue, op);
    return;
  }
  launch(pass.queue, op);
}

class Transformer final : public Model {
 public:
  Transformer(const ModelConfig& config,
              DType dtype,
              const ModelPart& part,
              std::shared_ptr<ParameterTable> table);

  void reserve_slots(int count) override;
  void prepare(Queue& queue) override;
  [[nodiscard]] std::size_t table_bytes() const override { return tables_.bytes(); }
  [[nodiscard]] std::vector<int> weight_order(PassKind kind) const override;
  void forward(Pass& pass, const ModelInput& batch) override;
  void backward(Pass& pass, const ModelInput& batch, float loss_scale) override;
  const std::int32_t* evaluate(Pass& pass, const ModelInput& batch) override;
  [[nodiscard]] double operations_per_target() const override;

 private:
  void declare_parameters();
  void make_rotary_table(double theta);
  [[nodiscard]] RotaryTable rotary() const {
    const auto* const both = tables_.as<float>();
    return both == nullptr ? RotaryTable{cos_.data(), sin_.data()}
                           : RotaryTable{both, both + cos_.size()};
  }
  [[nodiscard]] BlockedTable embedding_table(void* data, DType dtype) const;
  void embed(Pass& pass, const ModelInput& batch, Matrix out) const;
  /// Dropout of the embedding or its gradient, in place.
  void drop_embedding(Pass& pass, Matrix x) const;
  [[nodiscard]] Matrix all_rows(Pass& pass, Matrix x) const {
    return gather_all_rows(pass, shape_.split, x, shape_.seq_length);
  }
  /// Loss of the final norm's output in chunks of rows, so that the logits are never whole. With
  /// `trains` what the pass finds of a backward pass, too: `dnorm`, the output's gradient (one product a
  /// vocabulary block), and the head's. Each part of a backward pass computes the logits.
  void head(
      Pass& pass, const ModelInput& batch, float loss_scale, bool trains, const BlockSum& dnorm);
  void embedding_backward(Pass& pass, const ModelInput& batch, Matrix d);

  ModelPart part_;
  DType dtype_;
  TransformerShape shape_;
  long vocab_;
  bool tied_;
  std::vector<TransformerBlock> layers_;
  int embedding_ = -1;
  int positions_ = -1;
  int norm_gain_ = -1;
  int norm_bias_ = -1;
  int head_ = -1;
  std::vector<float> cos_;
  std::vector<float> sin_;
  Memory tables_;  ///< cos_, then sin_, on a device that is not the host

  // Of a micro-batch between forward and backward.
  struct Kept {
    ActivationStack::Mark base = 0;
    std::vector<Matrix> x;  ///< inputs of the layers; with the head, its own too
    std::vector<Matrix> d;  ///< gradients of x, and of the last layer's output
    std::vector<TransformerBlock::Saved> saved;
    Matrix norm;
    float* mean = nullptr;
    float* rstd = nullptr;
    float* late = nullptr;  ///< NormSums::late of the last norm
  };
  [[nodiscard]] Kept& kept(const Pass& pass) {
    return slots_[static_cast<std::size_t>(pass.boundary.slot)];
  }
  void forward_norm(Pass& pass, Kept& kept);
  void place_gradients(Pass& pass, Kept& kept);
  void head_backward(Pass& pass, const ModelInput& batch, float loss_scale);
  void enter_unit(const Pass& pass, int unit) const;
  void leave_unit(const Pass& pass, int unit) const;

  std::vector<Kept> slots_;

  // Numbers of units, -1 for one that is not here.
  int front_unit_ =
      -1;  ///< embedding and positions, unless a tied embedding leaves positions alone
  std::vector<int> layer_units_;
  int norm_unit_ = -1;
  int head_unit_ = -1;
};

Transformer::Transformer(const ModelConfig& config,
                         DType dtype,
                         const ModelPart& part,
                         std::shared_ptr<ParameterTable> table)
    : Model(std::move(table)),
      part_(part),
      dtype_(dtype),
      vocab_(config.vocab_size),
      tied_(config.tie_embeddings) {
  const bool llama = config.architecture == "llama";
  shape_.norm = llama ? NormKind::kRms : NormKind::kLayer;
  shape_.biases = !llama;
  shape_.rotary = llama;
  shape_.gated = llama;
  shape_.hidden = config.hidden_size;
  shape_.heads = config.num_heads;
  shape_.kv_heads = config.num_kv_heads > 0 ? config.num_kv_heads : config.num_heads;
  shape_.head_dim = config.hidden_size / config.num_heads;
  shape_.ffn = ffn_size_of(config);
  shape_.seq_length = config.seq_length;
  shape_.epsilon = config.norm_epsilon;
  shape_.dropout = config.dropout;
  shape_.split = table_.split();
  shape_.num_layers = static_cast<int>(config.num_layers);
  declare_parameters();
  if (llama) {
    make_rotary_table(config.rope_theta);
  }
  end_of_declarations();
  reserve_slots(1);
}

void Transformer::reserve_slots(int count) {
  slots_.resize(static_cast<std::size_t>(count));
  for (Kept& kept : slots_) {
    kept.x.resize(layers_.size() + 1);
    kept.d.resize(layers_.size() + 1);
    kept.saved.resize(layers_.size());
  }
}

void Transformer::prepare(Queue& queue) {
  tables_ = {};
  if (queue.planned_kind() == DeviceKind::kCpu || cos_.empty()) {
    return;
  }
  const std::size_t bytes = cos_.size() * sizeof(float);
  tables_ = queue.allocate(2 * bytes);
  queue.copy_to_device(tables_.data(), cos_.data(), bytes);
  queue.copy_to_device(tables_.data() + bytes, sin_.data(), bytes);
}

void Transformer::declare_parameters() {
  const ParameterSpec vocabulary{
      .name = "embedding.weight",
      .shape = {vocab_, shape_.hidden},
      .initialisation = Initialisation::kNormal,
      .scale = kInitialDeviation,
      .split_dimension = 0,
      .parts = {{vocab_, ceil_div(vocab_, static_cast<long>(shape_.split.num_blocks))}}};
  const bool ties_here = tied_ && part_.embeds && part_.has_head;
  if (part_.embeds && (!ties_here || !shape_.rotary)) {
    front_unit_ = table_.begin_unit();
  }
  if (part_.embeds && !ties_here) {
    ParameterSpec embedding = vocabulary;
    embedding.is_shared = tied_;
    embedding.is_copy = tied_;
    embedding_ = table_.add(std::move(embedding));
  }
  if (part_.embeds && !shape_.rotary) {
    positions_ = table_.add({.name = "positions.weight",
                             .shape = {shape_.seq_length, shape_.hidden},
                             .initialisation = Initialisation::kNormal,
                             .scale = kInitialDeviation,
                             .parts = {}});
  }
  for (int layer = part_.first_layer; layer < part_.end_layer; ++layer) {
    layer_units_.push_back(table_.begin_unit());
    layers_.emplace_back(shape_, layer, table_);
  }
  if (!part_.has_head) {
    return;
  }
  norm_unit_ = table_.begin_unit();
  norm_gain_ = table_.add({.name = "norm.weight",
                           .shape = {shape_.hidden},
                           .initialisation = Initialisation::kOne,
                           .parts = {}});
  if (shape_.norm == NormKind::kLayer) {
    norm_bias_ = table_.add({.name = "norm.bias", .shape = {shape_.hidden}, .parts = {}});
  }
  head_unit_ = table_.begin_unit();
  ParameterSpec head = vocabulary;
  head.name = tied_ ? "embedding.weight" : "head.weight";
  head.tied_input = ties_here;
  head.is_shared = tied_ && !ties_here;
  head_ = table_.add(std::move(head));
  if (ties_here) {
    embedding_ = head_;
  }
}

std::vector<int> Transformer::weight_order(PassKind kind) const {
  std::vector<int> order;
  if (kind == PassKind::kBackwardWeight) {
    return part_.has_head ? std::vector{head_unit_} : order;
  }
  if (kind == PassKind::kBackward || kind == PassKind::kBackwardInput) {
    if (part_.has_head) {
      order = {head_unit_, norm_unit_};
    }
    order.insert(order.end(), layer_units_.rbegin(), layer_units_.rend());
    return order;
  }
  if (embedding_ >= 0 && embedding_ == head_) {
    order.push_back(head_unit_);
  }
  if (front_unit_ >= 0) {
    order.push_back(front_unit_);
  }
  order.insert(order.end(), layer_units_.begin(), layer_units_.end());
  if (part_.has_head) {
    order.push_back(norm_unit_);
  }
  if (part_.has_head && kind == PassKind::kEvaluate) {
    order.push_back(head_unit_);
  }
  return order;
}

void Transformer::make_rotary_table(double theta) {
  const long pairs = shape_.head_dim / 2;
  for (long position = 0; position < shape_.seq_length; ++position) {
    for (long pair = 0; pair < pairs; ++pair) {
      // Hugging Face computes the inverse frequency and the angle in f32.
      const auto frequency = static_cast<float>(
          1.0 /
          std::pow(theta, 2.0 * static_cast<double>(pair) / static_cast<double>(shape_.head_dim)));
      const float angle = static_cast<float>(position) * frequency;
      cos_.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
      sin_.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
}

BlockedTable Transformer::embedding_table(void* data, DType dtype) const {
  const Parameter& parameter = table_[embedding_];
  return {.data = data,
          .dtype = dtype,
          .cols = shape_.hidden,
          .rows_per_block = parameter.block_rows,
          .block_stride = parameter.block_stride,
          .first_row = parameter.first_block * parameter.block_rows,
          .num_rows = parameter.num_blocks * parameter.block_rows};
}

void Transformer::embed(Pass& pass, const ModelInput& batch, Matrix out) const {
  TensorGroup* const group = pass.tensor;
  const long rows = batch.batch * shape_.seq_length;
  // A token is in the blocks of one rank, the others add zeros; one of them adds the positions.
  const bool with_positions = positions_ >= 0 && (group == nullptr || group->rank() == 0);
  const Matrix part = group == nullptr ? out : group->sum_buffer(rows, out.cols);
  launch(pass.queue,
         Embedding{.tokens = batch.tokens,
                   .table = embedding_table(pass.weights.block(embedding_, 0).data, dtype_),
                   .positions = with_positions ? pass.weights.whole(positions_) : Matrix{},
                   .seq_length = shape_.seq_length,
                   .out = part});
  if (group != nullptr && shape_.split.sequence) {
    const StackScope scratch(pass.scratch());
    const Matrix own = pass.scratch().push(DType::kF32, out.rows, out.cols);
    group->sum_rows(pass.queue, shape_.seq_length, own);
    launch(pass.queue, CombineBlocks{.blocks = BlockSum(own), .out = out});
  } else if (group != nullptr) {
    group->sum(part.size());
    launch(pass.queue, CombineBlocks{.blocks = BlockSum(part), .out = out});
  }
  drop_embedding(pass, out);
}

void Transformer::drop_embedding(Pass& pass, Matrix x) const {
  const LayerDropout dropout{
      .probability = shape_.dropout, .split = shape_.split, .seq_length = shape_.seq_length};
  dropout.apply(pass, DropoutSite::kEmbedding, x, x);
}

void Transformer::forward(Pass& pass, const ModelInput& batch) {
  const long rows = batch.batch * shape_.split.own_tokens(shape_.seq_length).size();
  ActivationStack& stack = pass.stack;
  Kept& kept = this->kept(pass);
  kept.base = stack.mark();
  if (part_.embeds) {
    kept.x[0] = stack.push(dtype_, rows, shape_.hidden);
    const bool ties_here = embedding_ == head_;
    if (ties_here) {
      pass.enter_weights(head_unit_);
    }
    if (front_unit_ >= 0) {
      pass.enter_weights(front_unit_);
    }
    embed(pass, batch, kept.x[0]);
    if (ties_here) {
      pass.leave_weights(head_unit_);
    }
    if (front_unit_ >= 0) {
      pass.leave_weights(front_unit_);
    }
  } else {
    kept.x[0] = pass.boundary.input;
  }
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const bool hands_over = layer + 1 == layers_.size() && !part_.has_head;
    kept.x[layer + 1] = hands_over ? pass.boundary.output : stack.push(dtype_, rows, shape_.hidden);
    pass.enter_weights(layer_units_[layer]);
    layers_[layer].forward(pass, rotary(), kept.x[layer], kept.x[layer + 1], kept.saved[layer]);
    pass.leave_weights(layer_units_[layer]);
    pass.poll();
  }
  if (part_.has_head) {
    pass.enter_weights(norm_unit_);
    forward_norm(pass, kept);
    pass.leave_weights(norm_unit_);
  } else if (layers_.empty()) {
    launch(pass.queue, CombineBlocks{.blocks = BlockSum(kept.x[0]), .out = pass.boundary.output});
  }
}

void Transformer::forward_norm(Pass& pass, Kept& kept) {
  const Matrix x = kept.x.back();
  kept.norm = pass.stack.push(dtype_, x.rows, shape_.hidden);
  kept.mean = shape_.norm == NormKind::kLayer ? pass.stack.push_array<float>(x.rows) : nullptr;
  kept.rstd = pass.stack.push_array<float>(x.rows);
  launch(pass.queue,
         NormForward{.kind = shape_.norm,
                     .x = BlockSum(x),
                     .gain = gain_of(pass, norm_gain_),
                     .bias = gain_of(pass, norm_bias_),
                     .epsilon = shape_.epsilon,
                     .y = kept.norm,
                     .mean = kept.mean,
                     .rstd = kept.rstd});
}

void Transformer::head(
    Pass& pass, const ModelInput& batch, float loss_scale, bool trains, const BlockSum& dnorm) {
  const StackScope scratch(pass.scratch());
  const Parameter& parameter = table_[head_];
  const Matrix norm = all_rows(pass, kept(pass).norm);
  const long stored_vocab = parameter.num_blocks * parameter.block_rows;
  const long rows = norm.rows;
  const long chunk_rows = logit_chunk_rows(rows, shape_.split.num_blocks * parameter.block_rows);
  auto* losses = pass.scratch().push_array<float>(rows);
  const Matrix all_logits = pass.scratch().push(DType::kF32, chunk_rows, stored_vocab);
  const Matrix all_dlogits = !trains || dtype_ == DType::kF32
                                 ? all_logits
                                 : pass.scratch().push(dtype_, chunk_rows, stored_vocab);
  for (long first = 0; first < rows; first += chunk_rows) {
    const long count = std::min(chunk_rows, rows - first);
    const Matrix x = norm.row_range(first, count);
    const Matrix logits = all_logits.row_range(0, count);
    const Matrix dlogits = all_dlogits.row_range(0, count);
    column_linear_forward(pass, {.weight = head_}, x, logits);
    vocabulary_cross_entropy(pass,
                             {.logits = logits,
                              .num_classes = vocab_,
                              .first_class = parameter.first_block * parameter.block_rows,
                              .blocks = parameter.num_blocks,
                              .targets = batch.targets + first,
                              .scale = loss_scale,
                              .dlogits = trains ? dlogits : Matrix{},
                              .losses = losses + first});
    if (trains) {
      Pass chunk_pass = pass;
      chunk_pass.accumulate = pass.accumulate || first > 0;
      BlockSum dx;
      if (pass.finds_inputs()) {
        dx = {dnorm.first.row_range(first, count), dnorm.count, dnorm.stride};
      }
      column_linear_backward(chunk_pass, {.weight = head_}, x, dlogits, dx);
    }
  }
  if (pass.loss != nullptr) {
    launch(pass.queue, LossSum{.losses = losses, .count = rows, .sum = pass.loss});
  }
}

void Transformer::embedding_backward(Pass& pass, const ModelInput& batch, Matrix d) {
  const Parameter& parameter = table_[embedding_];
  float* table =
      embedding_ == head_ ? pass.gradients.tied_input() : pass.gradients.vector(embedding_);
  const Matrix positions = positions_ < 0 ? Matrix{} : pass.gradients.block(positions_, 0);
  if (!pass.accumulate) {
    launch(pass.queue,
           FillZero{.data = table,
                    .bytes = static_cast<std::size_t>(parameter.stored_elements()) * 4});
    if (positions) {
      launch(pass.queue, FillZero{.data = positions.data, .bytes = positions.bytes()});
    }
  }
  drop_embedding(pass, d);
  launch(pass.queue,
         EmbeddingBackward{.tokens = batch.tokens,
                           .dout = all_rows(pass, d),
                           .dtable = embedding_table(table, DType::kF32),
                           .dpositions = positions,
                           .seq_length = shape_.seq_length});
}

// A weight part reads no weights but the head's.
void Transformer::enter_unit(const Pass& pass, int unit) const {
  if (pass.finds_inputs() || unit == head_unit_) {
    pass.enter_weights(unit);
  }
  pass.enter_gradients(unit);
}

void Transformer::leave_unit(const Pass& pass, int unit) const {
  if (pass.finds_inputs() || unit == head_unit_) {
    pass.leave_weights(unit);
  }
}

void Transformer::head_backward(Pass& pass, const ModelInput& batch, float loss_scale) {
  const StackScope scratch(pass.scratch());
  Kept& kept = this->kept(pass);
  BlockSum dnorm;
  if (pass.finds_inputs()) {
    dnorm = push_blocks(
        pass, dtype_, batch.batch * shape_.seq_length, shape_.hidden, table_[head_].num_blocks);
  }
  enter_unit(pass, head_unit_);
  head(pass, batch, loss_scale, true, dnorm);
  leave_unit(pass, head_unit_);
  pass.gradients_complete_from(head_);
  if (pass.part == BackwardPart::kInput) {
    kept.late = push_late_sums(pass, shape_.hidden);
  }
  enter_unit(pass, norm_unit_);
  norm_backward_over_ranks(pass,
                           shape_.split,
                           {.kind = shape_.norm,
                            .dy = dnorm,
                            .x = kept.x.back(),
                            .gain = gain_of(pass, norm_gain_),
                            .mean = kept.mean,
                            .rstd = kept.rstd,
                            .dx = kept.d.back(),
                            .token_blocks = shape_.token_blocks()},
                           {.gain = norm_gain_, .bias = norm_bias_, .late = kept.late},
                           shape_.seq_length);
  leave_unit(pass, norm_unit_);
  pass.gradients_complete_from(norm_gain_);
}

// A whole pass works in one matrix. An input part keeps what a weight part reads: the gradients of the
// outputs of all layers, and of the embedding.
void Transformer::place_gradients(Pass& pass, Kept& kept) {
  const Matrix given = pass.boundary.gradient;
  const long rows = kept.x[0].rows;
  if (pass.part == BackwardPart::kWhole) {
    const Matrix d = given ? given : pass.scratch().push(dtype_, rows, shape_.hidden);
    std::fill(kept.d.begin(), kept.d.end(), d);
  } else if (pass.part == BackwardPart::kInput) {
    const auto is_kept = [&](std::size_t i) { return i > 0 || part_.embeds; };
    for (std::size_t i = 0; i < kept.d.size(); ++i) {
      kept.d[i] = is_kept(i) ? pass.stack.push(dtype_, rows, shape_.hidden) : given;
    }
    if (!part_.has_head && is_kept(layers_.size())) {
      launch(pass.queue, CombineBlocks{.blocks = BlockSum(given), .out = kept.d.back()});
    }
  }
}

void Transformer::backward(Pass& pass, const ModelInput& batch, float loss_scale) {
  LOCKSTEP_CHECK(pass.part == BackwardPart::kWhole ||
                 (pass.scratch_stack != nullptr && pass.recompute != Recompute::kFull));
  Kept& kept = this->kept(pass);
  {
    const StackScope scratch(pass.scratch());
    place_gradients(pass, kept);
    if (part_.has_head) {
      head_backward(pass, batch, loss_scale);
    }
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
      enter_unit(pass, layer_units_[layer]);
      layers_[layer].backward(
          pass, rotary(), kept.x[layer], kept.saved[layer], kept.d[layer + 1], kept.d[layer]);
      leave_unit(pass, layer_units_[layer]);
    }
    if (part_.embeds && pass.finds_weights()) {
      if (front_unit_ >= 0) {
        pass.enter_gradients(front_unit_);
      }
      if (embedding_ == head_) {
        pass.enter_gradients(static_cast<int>(table_.units().size()));
      }
      embedding_backward(pass, batch, kept.d[0]);
    }
  }
  if (pass.finds_weights()) {
    pass.gradients_complete_to_front(own_elements());
    pass.stack.pop_to(kept.base);
  }
}

const std::int32_t* Transformer::evaluate(Pass& pass, const ModelInput& batch) {
  forward(pass, batch);
  if (part_.has_head) {
    pass.enter_weights(head_unit_);
    head(pass, batch, 1.0F, false, {});
    pass.leave_weights(head_unit_);
  }
  pass.stack.pop_to(kept(pass).base);
  return nullptr;
}

double Transformer::operations_per_target() const {
  // PaLM (Chowdhery et al., 2022), appendix B: 6 a weight of the matrix products and
  // 12 * layers * hidden * seq_length for attention, the whole square counted.
  double weights = 0;
  for (const Parameter& parameter : table_.parameters()) {
    if (parameter.shape.size() == 2) {
      weights += static_cast<double>(parameter.num_elements());
    }
  }
  if (positions_ >= 0) {
    weights -= static_cast<double>(table_[positions_].num_elements());
  }
  if (embedding_ >= 0 && embedding_ != head_) {
    weights -= static_cast<double>(table_[embedding_].num_elements());
  }
  const double query = static_cast<double>(shape_.heads * shape_.head_dim);
  return 6.0 * weights + 12.0 * static_cast<double>(layers_.size()) * query *
                             static_cast<double>(shape_.seq_length);
}

}  // namespace

std::unique_ptr<Model> make_transformer_part(const ModelConfig& config,
                                             DType dtype,
                                             const ModelPart& part,
                                             std::shared_ptr<ParameterTable> table) {
  check_transformer_sizes(config, table->split());
  return std::make_unique<Transformer>(config, dtype, part, std::move(table));
}

std::unique_ptr<Model> make_transformer(const ModelConfig& config, DType dtype, TensorSplit split) {
  return make_transformer_part(config,
                               dtype,
                               {.end_layer = static_cast<int>(config.num_layers)},
                               std::make_shared<ParameterTable>(split));
}

}  // namespace lockstep
