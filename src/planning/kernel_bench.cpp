#include "planning/kernel_bench.h"

#include <algorithm>
#include <array>

#include <spdlog/fmt/fmt.h>

#include "base/integers.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "nn/transformer_sizes.h"

namespace lockstep {
namespace {

// What a step of `config` hands to its kernels.
struct StepSizes {
  DType dtype = DType::kF32;
  long batch = 0;
  long seq_length = 0;
  long hidden = 0;
  long heads = 0;
  long kv_heads = 0;
  long head_dim = 0;
  long ffn = 0;
  long vocab = 0;
  bool gated = false;
  long flat_elements = 0;

  explicit StepSizes(const KernelBenchConfig& config);
  [[nodiscard]] long rows() const { return batch * seq_length; }
  [[nodiscard]] long qkv() const { return (heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] std::string matrix_text(long rows, long cols) const {
    return fmt::format("{} x {} {}", rows, cols, name_of(dtype));
  }
};

StepSizes::StepSizes(const KernelBenchConfig& config)
    : dtype(config.dtype), batch(config.batch), seq_length(config.model.seq_length) {
  const ModelConfig& model = config.model;
  check_transformer_sizes(model, TensorSplit{});
  hidden = model.hidden_size;
  heads = model.num_heads;
  kv_heads = model.num_kv_heads > 0 ? model.num_kv_heads : heads;
  head_dim = hidden / heads;
  ffn = ffn_size_of(model);
  vocab = model.vocab_size;
  gated = model.architecture == "llama";
  const long layer = hidden * (qkv() + heads * head_dim + (gated ? 3 : 2) * ffn);
  const long all = vocab * hidden * (model.tie_embeddings ? 1 : 2) + model.num_layers * layer;
  flat_elements = round_up(std::min(all, config.most_elements), kChunkElements);
}

void measure_embedding(KernelTimer& timer, const StepSizes& sizes) {
  const std::string shape = sizes.matrix_text(sizes.rows(), sizes.hidden);
  const std::int32_t* const tokens = timer.ids(sizes.rows(), sizes.vocab);
  const auto table_of = [&](DType dtype) {
    return BlockedTable{.data = timer.matrix(dtype, sizes.vocab, sizes.hidden).data,
                        .dtype = dtype,
                        .cols = sizes.hidden,
                        .rows_per_block = sizes.vocab,
                        .num_rows = sizes.vocab};
  };
  const Matrix out = timer.matrix(sizes.dtype, sizes.rows(), sizes.hidden);
  timer.measure("with positions",
                shape,
                Embedding{.tokens = tokens,
                          .table = table_of(sizes.dtype),
                          .positions = timer.matrix(sizes.dtype, sizes.seq_length, sizes.hidden),
                          .seq_length = sizes.seq_length,
                          .out = out});
  timer.measure(
      "with positions",
      shape,
      EmbeddingBackward{.tokens = tokens,
                        .dout = out,
                        .dtable = table_of(DType::kF32),
                        .dpositions = timer.matrix(DType::kF32, sizes.seq_length, sizes.hidden),
                        .seq_length = sizes.seq_length});
  timer.release();
}

// Forward as after the projection of the attention: fused with bias and residual.
void measure_norm(KernelTimer& timer, const StepSizes& sizes, NormKind kind) {
  const bool layer = kind == NormKind::kLayer;
  const std::string role = layer ? "layer norm" : "RMS norm";
  const std::string shape = sizes.matrix_text(sizes.rows(), sizes.hidden);
  const auto whole = [&] { return timer.matrix(sizes.dtype, sizes.rows(), sizes.hidden); };
  const auto row = [&] { return timer.matrix(sizes.dtype, 1, sizes.hidden); };
  const NormForward plain{.kind = kind,
                          .x = BlockSum(whole()),
                          .gain = row(),
                          .bias = layer ? row() : Matrix{},
                          .y = whole(),
                          .mean = layer ? timer.zeros(sizes.rows()) : nullptr,
                          .rstd = timer.zeros(sizes.rows())};
  NormForward fused = plain;
  fused.x_bias = layer ? row() : Matrix{};
  fused.residual = whole();
  fused.sum = whole();
  timer.measure(role, shape, plain);
  timer.measure(role + (layer ? ", bias and residual added" : ", residual added"), shape, fused);
  timer.measure(role,
                shape,
                NormBackward{.kind = kind,
                             .dy = BlockSum(whole()),
                             .x = fused.sum,
                             .gain = plain.gain,
                             .mean = plain.mean,
                             .rstd = plain.rstd,
                             .dresidual = whole(),
                             .dx = whole(),
                             .dgain = timer.zeros(sizes.hidden),
                             .dbias = layer ? timer.zeros(sizes.hidden) : nullptr,
                             .accumulate = true,
                             .token_blocks = {.seq_length = sizes.seq_length}});
  timer.release();
}

// The products of a linear layer: y = x W^T, dx = dy W, dW += dy^T x. Logits are f32.
void measure_products(KernelTimer& timer,
                      const StepSizes& sizes,
                      const std::string& layer,
                      long rows,
                      long in,
                      long out,
                      DType result) {
  const Matrix x = timer.matrix(sizes.dtype, rows, in);
  const Matrix weight = timer.matrix(sizes.dtype, out, in);
  const Matrix dy = timer.matrix(sizes.dtype, rows, out);
  const auto measure = [&](const char* form, const MatMul& op) {
    const std::string shape =
        fmt::format("{} x {} x {} {}", op.m(), op.n(), op.k(), name_of(sizes.dtype));
    timer.measure(fmt::format("{}, {}", layer, form), shape, op);
  };
  measure("forward",
          {.a = x, .b = weight, .transpose_b = true, .c = timer.zero_matrix(result, rows, out)});
  measure("input gradient", {.a = dy, .b = weight, .c = timer.zero_matrix(sizes.dtype, rows, in)});
  measure("weight gradient",
          {.a = dy,
           .transpose_a = true,
           .b = x,
           .c = timer.zero_matrix(DType::kF32, out, in),
           .accumulate = true});
  timer.release();
}

void measure_linear_layers(KernelTimer& timer, const StepSizes& sizes) {
  const long rows = sizes.rows();
  const long query = sizes.heads * sizes.head_dim;
  const auto measure = [&](const char* layer, long in, long out) {
    measure_products(timer, sizes, layer, rows, in, out, sizes.dtype);
  };
  measure("qkv", sizes.hidden, sizes.qkv());
  measure("projection", query, sizes.hidden);
  measure(sizes.gated ? "gate and up" : "up", sizes.hidden, (sizes.gated ? 2 : 1) * sizes.ffn);
  measure("down", sizes.ffn, sizes.hidden);
  measure_products(timer,
                   sizes,
                   "head",
                   logit_chunk_rows(rows, sizes.vocab),
                   sizes.hidden,
                   sizes.vocab,
                   DType::kF32);
}

// GPT-2's probability.
DropoutSource dropout_source(DropoutSite site) {
  return {.probability = 0.1, .seed = 1, .site = site};
}

void measure_attention(KernelTimer& timer, const StepSizes& sizes) {
  const AttentionShape attention{.batch = sizes.batch,
                                 .seq_length = sizes.seq_length,
                                 .heads = sizes.heads,
                                 .kv_heads = sizes.kv_heads,
                                 .head_dim = sizes.head_dim};
  const std::string shape = fmt::format("{} x {} heads of {} x {} {}",
                                        sizes.batch,
                                        sizes.heads,
                                        sizes.seq_length,
                                        sizes.head_dim,
                                        name_of(sizes.dtype));
  const long query = sizes.heads * sizes.head_dim;
  const long key = sizes.kv_heads * sizes.head_dim;
  const Matrix qkv = timer.matrix(sizes.dtype, sizes.rows(), sizes.qkv());
  const Matrix dqkv = timer.matrix(sizes.dtype, sizes.rows(), sizes.qkv());
  const Matrix out = timer.matrix(sizes.dtype, sizes.rows(), query);
  float* const log_sum_exp = timer.zeros(sizes.heads * sizes.rows());
  AttentionForward forward{.shape = attention,
                           .q = qkv.columns(0, query),
                           .k = qkv.columns(query, key),
                           .v = qkv.columns(query + key, key),
                           .out = out,
                           .log_sum_exp = log_sum_exp};
  AttentionBackward backward{.shape = attention,
                             .q = forward.q,
                             .k = forward.k,
                             .v = forward.v,
                             .out = out,
                             .log_sum_exp = log_sum_exp,
                             .dout = timer.matrix(sizes.dtype, sizes.rows(), query),
                             .dq = dqkv.columns(0, query),
                             .dk = dqkv.columns(query, key),
                             .dv = dqkv.columns(query + key, key)};
  timer.measure("causal", shape, forward);
  timer.measure("causal", shape, backward);
  forward.dropout.source = dropout_source(DropoutSite::kAttention);
  backward.dropout = forward.dropout;
  timer.measure("causal, with dropout", shape, forward);
  timer.measure("causal, with dropout", shape, backward);
  if (sizes.head_dim % 2 == 0) {
    timer.measure("queries and keys",
                  sizes.matrix_text(sizes.rows(), query + key),
                  Rotary{.x = qkv.columns(0, query + key),
                         .head_dim = sizes.head_dim,
                         .seq_length = sizes.seq_length,
                         .cos = timer.values(sizes.seq_length * sizes.head_dim / 2),
                         .sin = timer.values(sizes.seq_length * sizes.head_dim / 2)});
  }
  timer.release();
}

// A bias of zeros leaves what is added to in place as it is, however often.
void measure_activations(KernelTimer& timer, const StepSizes& sizes) {
  const auto whole = [&](long cols) { return timer.matrix(sizes.dtype, sizes.rows(), cols); };
  const auto no_bias = [&](long cols) { return timer.zero_matrix(sizes.dtype, 1, cols); };
  const std::string shape = sizes.matrix_text(sizes.rows(), sizes.ffn);
  const Matrix x = whole(sizes.ffn);
  const Matrix y = whole(sizes.ffn);
  const Matrix dy = whole(sizes.ffn);
  const Matrix dx = whole(sizes.ffn);
  timer.measure("bias of qkv",
                sizes.matrix_text(sizes.rows(), sizes.qkv()),
                BiasActivation{.x = whole(sizes.qkv()), .bias = no_bias(sizes.qkv())});
  timer.measure(
      "bias and GELU",
      shape,
      BiasActivation{.activation = Activation::kGelu, .x = x, .bias = no_bias(sizes.ffn), .y = y});
  timer.measure("GELU",
                shape,
                ActivationBackward{.activation = Activation::kGelu, .x = x, .dy = dy, .dx = dx});
  timer.measure("SwiGLU", shape, Swiglu{.gate = x, .up = dx, .y = y});
  timer.measure("SwiGLU",
                shape,
                SwigluBackward{.gate = x, .up = y, .dy = dy, .dgate = dx, .dup = whole(sizes.ffn)});
  timer.release();
}

void measure_cross_entropy(KernelTimer& timer, const StepSizes& sizes) {
  const long rows = logit_chunk_rows(sizes.rows(), sizes.vocab);
  const std::string shape = fmt::format("{} x {} f32", rows, sizes.vocab);
  const Matrix logits = timer.matrix(DType::kF32, rows, sizes.vocab);
  SoftmaxCrossEntropy op{.logits = logits,
                         .num_classes = sizes.vocab,
                         .targets = timer.ids(rows, sizes.vocab),
                         .scale = 1.0F / static_cast<float>(sizes.rows()),
                         .losses = timer.zeros(rows)};
  timer.measure("evaluation", shape, op);
  op.dlogits = timer.zero_matrix(sizes.dtype, rows, sizes.vocab);
  timer.measure("training", shape, op);
  // As on the first of two ranks that share the vocabulary.
  constexpr int kParts = 2;
  const long own = ceil_div(sizes.vocab, static_cast<long>(kParts));
  const std::string own_shape = fmt::format("{} x {} f32", rows, own);
  op.logits = logits.columns(0, own);
  op.dlogits = op.dlogits.columns(0, own);
  float* const maxima = timer.values(kParts * rows);
  timer.measure("half of the vocabulary", own_shape, ClassMaxima{.of = op, .maxima = maxima});
  float* const sums = timer.zeros(2L * kParts * rows);
  ClassSums class_sums{.of = op,
                       .maxima = maxima,
                       .num_parts = kParts,
                       .largest = timer.zeros(rows),
                       .sums = sums + 2 * rows};
  launch(timer.queue(), class_sums);
  class_sums.sums = sums;
  timer.measure("half of the vocabulary", own_shape, class_sums);
  op.statistics = {.parts = kParts, .maxima = class_sums.largest, .sums = sums};
  timer.measure("training, half of the vocabulary", own_shape, op);
  timer.release();
}

void measure_rows(KernelTimer& timer, const StepSizes& sizes) {
  const Matrix x = timer.matrix(sizes.dtype, sizes.rows(), sizes.ffn);
  timer.measure("gradient of a bias",
                sizes.matrix_text(x.rows, x.cols),
                ColumnSum{.x = x,
                          .out = timer.zeros(x.cols),
                          .accumulate = true,
                          .token_blocks = {.seq_length = x.rows}});
  const auto whole = [&] { return timer.matrix(sizes.dtype, sizes.rows(), sizes.hidden); };
  timer.measure("product, bias and residual",
                sizes.matrix_text(sizes.rows(), sizes.hidden),
                CombineBlocks{.blocks = BlockSum(whole()),
                              .bias = timer.matrix(sizes.dtype, 1, sizes.hidden),
                              .residual = whole(),
                              .out = whole()});
  timer.measure("of the feed-forward part",
                sizes.matrix_text(sizes.rows(), sizes.hidden),
                Dropout{.source = dropout_source(DropoutSite::kFeedForward),
                        .rows = {.tokens = sizes.seq_length},
                        .x = whole(),
                        .y = whole()});
  timer.measure("of a micro-batch",
                fmt::format("{} f32", sizes.rows()),
                LossSum{.losses = timer.values(sizes.rows()),
                        .count = sizes.rows(),
                        .sum = timer.results<double>(1)});
  timer.release();
}

void measure_optimizers(KernelTimer& timer, const StepSizes& sizes) {
  const long count = sizes.flat_elements;
  const std::string shape = fmt::format("{} f32", count);
  const bool rounds = sizes.dtype == DType::kBF16;
  float* const parameter = timer.values(count);
  float* const first_moment = timer.zeros(count);
  const float* const gradient = timer.values(count);
  void* const compute = rounds ? timer.zero_matrix(DType::kBF16, 1, count).data : nullptr;
  timer.measure(rounds ? "and bf16 copy" : "",
                shape,
                AdamW{.count = count,
                      .parameter = parameter,
                      .first_moment = first_moment,
                      .second_moment = timer.zeros(count),
                      .gradient = gradient,
                      .compute_bf16 = compute,
                      .lr = 1e-4,
                      .weight_decay = 0.1,
                      .correction1 = 0.1,
                      .correction2 = 0.05});
  timer.measure(rounds ? "momentum, and bf16 copy" : "momentum",
                shape,
                Sgd{.count = count,
                    .parameter = parameter,
                    .velocity = first_moment,
                    .gradient = gradient,
                    .compute_bf16 = compute,
                    .lr = 1e-6,
                    .momentum = 0.9});
  timer.release();
}

void measure_flat_buffers(KernelTimer& timer, const StepSizes& sizes) {
  constexpr std::size_t kInputs = 2;
  const long count = sizes.flat_elements;
  const std::string shape = fmt::format("{} f32", count);
  std::array<float*, kInputs> inputs{};
  for (float*& input : inputs) {
    input = timer.values(count);
  }
  float* const output = timer.zeros(count);
  timer.measure("two accumulators",
                shape,
                SumTree{.inputs = inputs.data(),
                        .num_inputs = kInputs,
                        .outputs = &output,
                        .num_outputs = 1,
                        .count = count});
  timer.measure("norm of gradients",
                shape,
                SquaredSums{.x = inputs[0],
                            .count = count,
                            .chunk_sums = timer.results<double>(count / kChunkElements)});
  timer.measure(
      "gradients", shape, FillZero{.data = output, .bytes = bytes_of(count, DType::kF32)});
  timer.measure(
      "weights",
      shape,
      CastToBFloat16{
          .from = inputs[0], .to = timer.zero_matrix(DType::kBF16, 1, count).data, .count = count});
  timer.release();
}

}  // namespace

KernelBenchConfig usual_kernel_bench(DeviceKind device) {
  const bool gpu = device == DeviceKind::kCuda;
  KernelBenchConfig config;
  config.model.architecture = "gpt2";
  config.model.num_layers = 12;
  config.model.hidden_size = 768;
  config.model.num_heads = 12;
  config.model.seq_length = gpu ? 1024 : 256;
  config.model.vocab_size = 50257;
  config.batch = gpu ? 8 : 1;
  config.most_elements = 1L << (gpu ? 27U : 25U);
  config.copied_bytes = std::size_t{1} << (gpu ? 30U : 28U);
  config.product_size = gpu ? 8192 : 2048;
  return config;
}

KernelBenchReport measure_kernels(Queue& queue, const KernelBenchConfig& config) {
  const StepSizes sizes(config);
  KernelTimer timer(queue, config.effort);
  KernelBenchReport report{.config = config, .device = {}, .limits = {}, .kernels = {}};
  report.limits = timer.measure_limits(config.copied_bytes, config.product_size, config.dtype);
  measure_embedding(timer, sizes);
  measure_norm(timer, sizes, NormKind::kLayer);
  measure_norm(timer, sizes, NormKind::kRms);
  measure_linear_layers(timer, sizes);
  measure_attention(timer, sizes);
  measure_activations(timer, sizes);
  measure_cross_entropy(timer, sizes);
  measure_rows(timer, sizes);
  measure_optimizers(timer, sizes);
  measure_flat_buffers(timer, sizes);
  report.kernels = timer.timings();
  return report;
}

}  // namespace lockstep
