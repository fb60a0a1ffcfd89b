#include "nn/transformer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/integers.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/reduce.h"
#include "nn/transformer_block.h"

namespace lockstep {
namespace {

constexpr double kInitialDeviation = 0.02;
constexpr long kLogitElements = 1L << 24U;  // of one chunk: 64 MiB in f32

class Transformer final : public Model {
 public:
  Transformer(const ModelConfig& config, DType dtype, int virtual_tensor);

  void forward(Pass& pass, const ModelInput& batch) override;
  LossPart backward(Pass& pass, const ModelInput& batch, float loss_scale) override;
  LossPart evaluate(Pass& pass, const ModelInput& batch) override;
  [[nodiscard]] double operations_per_target() const override;

 private:
  void declare_parameters();
  void make_rotary_table(double theta);
  [[nodiscard]] RotaryTable rotary() const { return {cos_.data(), sin_.data()}; }
  [[nodiscard]] BlockedTable embedding_table(void* data, DType dtype) const;
  /// Loss of the final norm's output in chunks of rows, so that the logits are never whole; with
  /// `dnorm` also its gradient (one product a vocabulary block) and the head's.
  double head(Pass& pass, const ModelInput& batch, float loss_scale, const BlockSum* dnorm);
  void embedding_backward(Pass& pass, const ModelInput& batch, Matrix d);

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

  // Of the micro-batch between forward and backward.
  ActivationStack::Mark base_ = 0;
  std::vector<Matrix> x_;
  std::vector<TransformerBlock::Saved> saved_;
  Matrix norm_;
  float* mean_ = nullptr;
  float* rstd_ = nullptr;
};

Transformer::Transformer(const ModelConfig& config, DType dtype, int virtual_tensor)
    : Model(virtual_tensor),
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
  shape_.ffn = config.ffn_hidden_size;
  if (shape_.ffn == 0) {
    shape_.ffn = llama ? round_up(8 * shape_.hidden / 3, 64L) : 4 * shape_.hidden;
  }
  shape_.seq_length = config.seq_length;
  shape_.epsilon = config.norm_epsilon;
  shape_.num_blocks = virtual_tensor;
  shape_.num_layers = static_cast<int>(config.num_layers);
  declare_parameters();
  if (llama) {
    make_rotary_table(config.rope_theta);
  }
  x_.resize(layers_.size() + 1);
  saved_.resize(layers_.size());
}

void Transformer::declare_parameters() {
  const ParameterSpec vocabulary{
      .name = "embedding.weight",
      .shape = {vocab_, shape_.hidden},
      .initialisation = Initialisation::kNormal,
      .scale = kInitialDeviation,
      .split_dimension = 0,
      .parts = {{vocab_, ceil_div(vocab_, static_cast<long>(shape_.num_blocks))}}};
  if (!tied_) {
    embedding_ = table_.add(vocabulary);
  }
  if (!shape_.rotary) {
    positions_ = table_.add({.name = "positions.weight",
                             .shape = {shape_.seq_length, shape_.hidden},
                             .initialisation = Initialisation::kNormal,
                             .scale = kInitialDeviation,
                             .parts = {}});
  }
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    layers_.emplace_back(shape_, layer, table_);
  }
  norm_gain_ = table_.add({.name = "norm.weight",
                           .shape = {shape_.hidden},
                           .initialisation = Initialisation::kOne,
                           .parts = {}});
  if (shape_.norm == NormKind::kLayer) {
    norm_bias_ = table_.add({.name = "norm.bias", .shape = {shape_.hidden}, .parts = {}});
  }
  ParameterSpec head = vocabulary;
  head.name = tied_ ? "embedding.weight" : "head.weight";
  head.tied_input = tied_;
  head_ = table_.add(std::move(head));
  if (tied_) {
    embedding_ = head_;
  }
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
  return {data, dtype, shape_.hidden, parameter.block_rows, parameter.block_stride};
}

void Transformer::forward(Pass& pass, const ModelInput& batch) {
  const long rows = batch.batch * shape_.seq_length;
  ActivationStack& stack = pass.stack;
  base_ = stack.mark();
  x_[0] = stack.push(dtype_, rows, shape_.hidden);
  launch(pass.queue,
         Embedding{.tokens = batch.tokens,
                   .table = embedding_table(pass.weights.block(embedding_, 0).data, dtype_),
                   .positions = positions_ < 0 ? Matrix{} : pass.weights.whole(positions_),
                   .seq_length = shape_.seq_length,
                   .out = x_[0]});
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    x_[layer + 1] = stack.push(dtype_, rows, shape_.hidden);
    layers_[layer].forward(pass, rotary(), x_[layer], x_[layer + 1], saved_[layer]);
  }
  norm_ = stack.push(dtype_, rows, shape_.hidden);
  mean_ = shape_.norm == NormKind::kLayer ? stack.push_array<float>(rows) : nullptr;
  rstd_ = stack.push_array<float>(rows);
  launch(pass.queue,
         NormForward{.kind = shape_.norm,
                     .x = BlockSum(x_.back()),
                     .gain = gain_of(pass, norm_gain_),
                     .bias = gain_of(pass, norm_bias_),
                     .epsilon = shape_.epsilon,
                     .y = norm_,
                     .mean = mean_,
                     .rstd = rstd_});
}

double Transformer::head(Pass& pass,
                         const ModelInput& batch,
                         float loss_scale,
                         const BlockSum* dnorm) {
  const StackScope scratch(pass.stack);
  const Parameter& parameter = table_[head_];
  const long padded_vocab = parameter.num_blocks * parameter.block_rows;
  const long rows = norm_.rows;
  const long chunk = std::clamp(kLogitElements / padded_vocab / 64 * 64, 64L, std::max(64L, rows));
  const long chunk_rows = std::min(chunk, rows);
  auto* losses = pass.stack.push_array<float>(rows);
  const Matrix all_logits = pass.stack.push(DType::kF32, chunk_rows, padded_vocab);
  const Matrix all_dlogits = dnorm == nullptr || dtype_ == DType::kF32
                                 ? all_logits
                                 : pass.stack.push(dtype_, chunk_rows, padded_vocab);
  for (long first = 0; first < rows; first += chunk_rows) {
    const long count = std::min(chunk_rows, rows - first);
    const Matrix x = norm_.row_range(first, count);
    const Matrix logits = all_logits.row_range(0, count);
    const Matrix dlogits = all_dlogits.row_range(0, count);
    column_linear_forward(pass, {.weight = head_}, x, logits);
    launch(pass.queue,
           SoftmaxCrossEntropy{.logits = logits,
                               .num_classes = vocab_,
                               .blocks = parameter.num_blocks,
                               .targets = batch.targets + first,
                               .scale = loss_scale,
                               .dlogits = dnorm == nullptr ? Matrix{} : dlogits,
                               .losses = losses + first});
    if (dnorm != nullptr) {
      Pass chunk_pass = pass;
      chunk_pass.accumulate = pass.accumulate || first > 0;
      const BlockSum dx(dnorm->first.row_range(first, count), dnorm->count, dnorm->stride);
      column_linear_backward(chunk_pass, {.weight = head_}, x, dlogits, dx);
    }
  }
  double sum = 0;
  launch(pass.queue, LossSum{.losses = losses, .count = rows, .sum = &sum});
  pass.queue.synchronize();
  return sum;
}

void Transformer::embedding_backward(Pass& pass, const ModelInput& batch, Matrix d) {
  const Parameter& parameter = table_[embedding_];
  float* table = tied_ ? pass.gradients.tied_input() : pass.gradients.vector(embedding_);
  const Matrix positions = positions_ < 0 ? Matrix{} : pass.gradients.block(positions_, 0);
  if (!pass.accumulate) {
    launch(pass.queue,
           FillZero{.data = table,
                    .bytes = static_cast<std::size_t>(parameter.stored_elements()) * 4});
    if (positions) {
      launch(pass.queue, FillZero{.data = positions.data, .bytes = positions.bytes()});
    }
  }
  launch(pass.queue,
         EmbeddingBackward{.tokens = batch.tokens,
                           .dout = d,
                           .dtable = embedding_table(table, DType::kF32),
                           .dpositions = positions,
                           .seq_length = shape_.seq_length});
}

LossPart Transformer::backward(Pass& pass, const ModelInput& batch, float loss_scale) {
  const long rows = norm_.rows;
  const Matrix d = pass.stack.push(dtype_, rows, shape_.hidden);
  LossPart loss;
  {
    const StackScope scratch(pass.stack);
    const BlockSum dnorm = push_blocks(pass, dtype_, rows, shape_.hidden, table_[head_].num_blocks);
    loss.sum = head(pass, batch, loss_scale, &dnorm);
    pass.gradients_complete_from(head_);
    launch(pass.queue,
           NormBackward{.kind = shape_.norm,
                        .dy = dnorm,
                        .x = x_.back(),
                        .gain = gain_of(pass, norm_gain_),
                        .mean = mean_,
                        .rstd = rstd_,
                        .dx = d,
                        .dgain = pass.gradients.vector(norm_gain_),
                        .dbias = norm_bias_ < 0 ? nullptr : pass.gradients.vector(norm_bias_),
                        .accumulate = pass.accumulate,
                        .token_blocks = shape_.token_blocks()});
  }
  pass.gradients_complete_from(norm_gain_);
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    layers_[layer].backward(pass, rotary(), x_[layer], saved_[layer], d);
  }
  embedding_backward(pass, batch, d);
  pass.gradients_ready(0);
  pass.stack.pop_to(base_);
  return loss;
}

LossPart Transformer::evaluate(Pass& pass, const ModelInput& batch) {
  forward(pass, batch);
  LossPart loss;
  loss.sum = head(pass, batch, 1.0F, nullptr);
  pass.stack.pop_to(base_);
  return loss;
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
  if (!tied_) {
    weights -= static_cast<double>(table_[embedding_].num_elements());
  }
  const double query = static_cast<double>(shape_.heads * shape_.head_dim);
  return 6.0 * weights + 12.0 * shape_.num_layers * query * static_cast<double>(shape_.seq_length);
}

}  // namespace

std::unique_ptr<Model> make_transformer(const ModelConfig& config,
                                        DType dtype,
                                        int virtual_tensor) {
  if (config.num_heads <= 0 || config.hidden_size % config.num_heads != 0) {
    throw_request_error("model.hidden_size = {} is not a multiple of model.num_heads = {}",
                        config.hidden_size,
                        config.num_heads);
  }
  if (config.vocab_size <= 0) {
    throw_request_error(
        "model.vocab_size is not known: set it, or data.tokenizer, from which it is taken");
  }
  const long head_dim = config.hidden_size / config.num_heads;
  if (config.architecture == "llama" && head_dim % 2 != 0) {
    throw_request_error(
        "model.hidden_size / model.num_heads = {} is odd: rotary embeddings turn pairs", head_dim);
  }
  if (config.num_kv_heads > 0 && config.num_heads % config.num_kv_heads != 0) {
    throw_request_error("model.num_heads = {} is not a multiple of model.num_kv_heads = {}",
                        config.num_heads,
                        config.num_kv_heads);
  }
  return std::make_unique<Transformer>(config, dtype, virtual_tensor);
}

}  // namespace lockstep
