// Small models with random weights and a batch, for tests of whole passes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "device/cpu/cpu_queue.h"
#include "nn/model.h"
#include "nn/weights.h"

namespace lockstep::test {

/// Odd sizes, so that every split is padded. `architecture` is mlp, gpt2 or llama.
inline ModelConfig tiny_config(const std::string& architecture, bool tied = true) {
  ModelConfig config;
  config.architecture = architecture;
  config.layer_sizes = {9, 7, 11, 5, 3};
  config.num_layers = 2;
  config.hidden_size = 24;
  config.num_heads = 6;
  config.num_kv_heads = architecture == "llama" ? 2 : 0;
  config.ffn_hidden_size = 37;
  config.seq_length = 7;
  config.vocab_size = 29;
  config.tie_embeddings = tied;
  return config;
}

/// A model in f32 with everything a pass needs. Every third target is masked.
class TinyModel {
 public:
  TinyModel(const ModelConfig& config, int num_blocks, long batch = 3)
      : model_(make_model(config, DType::kF32, num_blocks)),
        stack_(queue_, kStackBytes),
        scratch_(queue_, kStackBytes),
        weights_(queue_.allocate(bytes(table().flat_size()))),
        gradients_(queue_.allocate(bytes(table().gradient_size()))),
        batch_(batch) {
    const bool images = config.architecture == "mlp";
    const long positions = images ? batch : batch * config.seq_length;
    const long classes = images ? config.layer_sizes.back() : config.vocab_size;
    for (long i = 0; i < positions; ++i) {
      tokens_.push_back(static_cast<std::int32_t>((i * 11 + 3) % config.vocab_size));
      targets_.push_back(i % 3 == 1 ? -1 : static_cast<std::int32_t>((i * 5 + 1) % classes));
      num_targets_ += i % 3 == 1 ? 0 : 1;
    }
    const RandomStream random(2, RandomPurpose::kTest, 1);
    for (long i = 0; i < batch * config.layer_sizes.front(); ++i) {
      features_.push_back(random.normal(static_cast<std::uint64_t>(i)));
    }
    draw_weights();
    spoil(stack_);
    spoil(scratch_);
  }

  [[nodiscard]] const ParameterTable& table() const { return model_->parameters(); }
  [[nodiscard]] float* weights() { return weights_.as<float>(); }
  [[nodiscard]] float* gradients() { return gradients_.as<float>(); }
  [[nodiscard]] long num_targets() const { return num_targets_; }

  /// From now on passes are those of an evaluation: nothing is dropped.
  void leave_training() { place_.reset(); }

  /// Sum of the losses of the trained targets, with what training drops.
  double loss() {
    Pass pass = make_pass(false, nothing_);
    model_->evaluate(pass, input());
    return loss_;
  }

  /// Forward and backward; gradients of the sum of losses times `scale`.
  double backward(float scale, bool accumulate, FunctionRef<void(long)> ready) {
    Pass pass = make_pass(accumulate, ready);
    model_->forward(pass, input());
    model_->backward(pass, input(), scale);
    return loss_;
  }
  double backward(float scale = 1.0F, bool accumulate = false) {
    return backward(scale, accumulate, nothing_);
  }

  /// The same with the backward pass in two parts and `between` called between them. Only of a transformer.
  double backward_in_parts(Recompute recompute,
                           bool accumulate,
                           FunctionRef<void()> between,
                           FunctionRef<void(long)> ready) {
    Pass pass = make_pass(false, ready);
    pass.recompute = recompute;
    pass.scratch_stack = &scratch_;
    model_->forward(pass, input());
    pass.part = BackwardPart::kInput;
    model_->backward(pass, input(), 1.0F);
    const double loss = loss_;
    between();
    pass.part = BackwardPart::kWeight;
    pass.accumulate = accumulate;
    model_->backward(pass, input(), 1.0F);
    return loss;
  }

  /// Gradient of element `index` of the flat weights, both sides of a tied one added.
  [[nodiscard]] double gradient(long index) {
    double sum = static_cast<double>(gradients()[table().tied_size() + index]);
    if (table().tied_index() >= 0) {
      const long first = table()[table().tied_index()].offset;
      if (index >= first && index < first + table().tied_size()) {
        sum += static_cast<double>(gradients()[index - first]);
      }
    }
    return sum;
  }
  [[nodiscard]] std::size_t stack_in_use() const { return stack_.mark() + scratch_.mark(); }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{16} << 20U;
  static std::size_t bytes(long count) { return static_cast<std::size_t>(count) * sizeof(float); }

  [[nodiscard]] ModelInput input() const {
    return {batch_, tokens_.data(), features_.data(), targets_.data()};
  }
  Pass make_pass(bool accumulate, FunctionRef<void(long)> ready) {
    return {.queue = queue_,
            .stack = stack_,
            .weights = Weights(table(), weights_.data(), DType::kF32),
            .gradients = Gradients(table(), gradients()),
            .accumulate = accumulate,
            .gradients_ready = ready,
            .loss = &loss_,
            .place = place_};
  }

  // A general point: no bias is zero and no gain one. A pure function of name and element.
  void draw_weights() {
    for (const Parameter& parameter : table().parameters()) {
      const RandomStream random(1, RandomPurpose::kTest, site_of(parameter.name.c_str()));
      const bool gain = parameter.initialisation == Initialisation::kOne;
      parameter.for_each_run([&](long canonical, long stored, long count) {
        for (long i = 0; i < count; ++i) {
          weights()[parameter.offset + stored + i] =
              (gain ? 1.0F : 0.0F) +
              0.2F * random.normal(static_cast<std::uint64_t>(canonical + i));
        }
      });
    }
  }

  // What is read before it is written shows.
  static void spoil(ActivationStack& stack) {
    const StackScope all(stack);
    const std::size_t count = kStackBytes / sizeof(float);
    std::fill_n(stack.push_array<float>(count), count, std::numeric_limits<float>::quiet_NaN());
  }

  struct Ignore {
    void operator()(long /*first*/) const {}
  };

  CpuQueue queue_{1};
  double loss_ = 0;
  std::unique_ptr<Model> model_;
  ActivationStack stack_;
  ActivationStack scratch_;
  Memory weights_;
  Memory gradients_;
  long batch_;
  long num_targets_ = 0;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> targets_;
  std::vector<float> features_;
  std::optional<TrainingPlace> place_ = TrainingPlace{.seed = 3, .step = 5, .first_sample = 11};
  Ignore nothing_;
};

}  // namespace lockstep::test
