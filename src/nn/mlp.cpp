#include "nn/mlp.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/integers.h"
#include "kernels/activation.h"
#include "kernels/cross_entropy.h"
#include "kernels/reduce.h"
#include "nn/linear.h"
#include "nn/split_rows.h"

namespace lockstep {
namespace {

class Mlp final : public Model {
 public:
  Mlp(const ModelConfig& config, DType dtype, TensorSplit split);

  void reserve_slots(int count) override;
  [[nodiscard]] std::vector<int> weight_order(PassKind kind) const override;
  void forward(Pass& pass, const ModelInput& batch) override;
  void backward(Pass& pass, const ModelInput& batch, float loss_scale) override;
  const std::int32_t* evaluate(Pass& pass, const ModelInput& batch) override;
  [[nodiscard]] double operations_per_target() const override;

 private:
  struct Layer {
    LinearParameters linear;
    long inputs = 0;
    long outputs = 0;
    long stored_outputs = 0;  ///< with the padding of a split by outputs
    bool by_output = false;
    int unit = 0;
  };

  [[nodiscard]] bool is_last(std::size_t layer) const { return layer + 1 == layers_.size(); }
  void layer_forward(Pass& pass, std::size_t index);
  /// Softmax and loss of the last layer's output; `dlogits` absent for evaluation.
  /// Predictions where there is no `dlogits`.
  const std::int32_t* loss(Pass& pass, const ModelInput& batch, float scale, Matrix dlogits) const;

  DType dtype_;
  std::vector<Layer> layers_;

  // Of the micro-batch between forward and backward.
  ActivationStack::Mark base_ = 0;
  std::vector<Matrix> z_;    ///< outputs before the activation
  std::vector<Matrix> act_;  ///< act_[i]: input of layer i
};

Mlp::Mlp(const ModelConfig& config, DType dtype, TensorSplit split)
    : Model(
          std::make_shared<ParameterTable>(TensorSplit(split.num_blocks, split.ranks, split.rank))),
      dtype_(dtype) {
  const auto& sizes = config.layer_sizes;
  const std::size_t count = sizes.size() - 1;
  const long blocks = split.num_blocks;
  for (std::size_t i = 0; i < count; ++i) {
    Layer layer;
    layer.inputs = sizes[i];
    layer.outputs = sizes[i + 1];
    layer.by_output = i % 2 == 0 && i + 1 < count;
    const bool by_input = i % 2 == 1;
    const SplitPart out{layer.outputs, ceil_div(layer.outputs, blocks)};
    const SplitPart in{layer.inputs, ceil_div(layer.inputs, blocks)};
    layer.stored_outputs = layer.by_output ? split.local_blocks() * out.block_size : layer.outputs;
    const double bound = 1.0 / std::sqrt(static_cast<double>(layer.inputs));
    const std::string name = "layers." + std::to_string(i);
    layer.unit = table_.begin_unit();
    layer.linear.weight = table_.add({.name = name + ".weight",
                                      .shape = {layer.outputs, layer.inputs},
                                      .initialisation = Initialisation::kUniform,
                                      .scale = bound,
                                      .split_dimension = layer.by_output ? 0
                                                         : by_input      ? 1
                                                                         : -1,
                                      .parts = {layer.by_output ? out : in}});
    layer.linear.bias = table_.add({.name = name + ".bias",
                                    .shape = {layer.outputs},
                                    .initialisation = Initialisation::kUniform,
                                    .scale = bound,
                                    .split_dimension = layer.by_output ? 0 : -1,
                                    .parts = {out}});
    layers_.push_back(layer);
  }
  end_of_declarations();
  z_.resize(count);
  act_.resize(count);
}

std::vector<int> Mlp::weight_order(PassKind kind) const {
  std::vector<int> order;
  for (const Layer& layer : layers_) {
    order.push_back(layer.unit);
  }
  if (kind == PassKind::kBackward) {
    std::reverse(order.begin(), order.end());
  }
  return order;
}

void Mlp::reserve_slots(int count) {
  LOCKSTEP_CHECK(count == 1);
}

void Mlp::layer_forward(Pass& pass, std::size_t index) {
  const Layer& layer = layers_[index];
  const Matrix x = act_[index];
  const DType out_dtype = is_last(index) ? DType::kF32 : dtype_;
  z_[index] = pass.stack.push(out_dtype, x.rows, layer.stored_outputs);
  const Matrix z = z_[index];
  if (!is_last(index)) {
    act_[index + 1] = pass.stack.push(dtype_, x.rows, layer.stored_outputs);
  }
  if (layer.by_output) {
    column_linear_forward(pass, layer.linear, x, z);
    const int blocks = table_[layer.linear.weight].num_blocks;
    const long width = layer.stored_outputs / blocks;
    for (int block = 0; block < blocks; ++block) {
      launch(pass.queue,
             BiasActivation{.activation = Activation::kRelu,
                            .x = z.columns(block * width, width),
                            .bias = bias_of(pass, layer.linear, block),
                            .y = act_[index + 1].columns(block * width, width)});
    }
    return;
  }
  const StackScope scratch(pass.scratch());
  const Parameter& weight = table_[layer.linear.weight];
  const int blocks = weight.num_blocks;
  TensorGroup* const group = weight.is_split() ? pass.tensor : nullptr;
  // A single product goes where the sum will be.
  const BlockSum products = blocks == 1 && out_dtype == dtype_ && group == nullptr
                                ? BlockSum(z)
                                : push_blocks(pass, dtype_, x.rows, layer.stored_outputs, blocks);
  row_linear_forward(pass, layer.linear, x, products);
  launch(pass.queue,
         CombineBlocks{.blocks = group == nullptr ? products : group->sum(pass.queue, products),
                       .bias = bias_of(pass, layer.linear, 0),
                       .out = z});
  if (!is_last(index)) {
    launch(pass.queue,
           BiasActivation{.activation = Activation::kRelu, .x = z, .y = act_[index + 1]});
  }
}

void Mlp::forward(Pass& pass, const ModelInput& batch) {
  base_ = pass.stack.mark();
  const long inputs = layers_.front().inputs;
  const Matrix features(const_cast<float*>(batch.features), DType::kF32, batch.batch, inputs);
  act_[0] = features;  // read only
  if (dtype_ != DType::kF32) {
    act_[0] = pass.stack.push(dtype_, batch.batch, inputs);
    launch(
        pass.queue,
        CastToBFloat16{.from = batch.features, .to = act_[0].data, .count = batch.batch * inputs});
  }
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    pass.enter_weights(layers_[layer].unit);
    layer_forward(pass, layer);
    pass.leave_weights(layers_[layer].unit);
  }
}

const std::int32_t* Mlp::loss(Pass& pass,
                              const ModelInput& batch,
                              float scale,
                              Matrix dlogits) const {
  const StackScope scratch(pass.scratch());
  auto* losses = pass.stack.push_array<float>(batch.batch);
  auto* predictions =
      dlogits ? nullptr : pass.stack.push_array<std::int32_t>(batch.batch);  // costs in training
  launch(pass.queue,
         SoftmaxCrossEntropy{.logits = z_.back(),
                             .num_classes = layers_.back().outputs,
                             .targets = batch.targets,
                             .scale = scale,
                             .dlogits = dlogits,
                             .losses = losses,
                             .predictions = predictions});
  if (pass.loss != nullptr) {
    launch(pass.queue, LossSum{.losses = losses, .count = batch.batch, .sum = pass.loss});
  }
  return predictions;
}

void Mlp::backward(Pass& pass, const ModelInput& batch, float loss_scale) {
  LOCKSTEP_CHECK(pass.part == BackwardPart::kWhole);
  Matrix d =
      dtype_ == DType::kF32 ? z_.back() : pass.stack.push(dtype_, batch.batch, z_.back().cols);
  loss(pass, batch, loss_scale, d);
  for (std::size_t index = layers_.size(); index-- > 0;) {
    const Layer& layer = layers_[index];
    const Matrix x = act_[index];
    const Matrix dx = index == 0 ? Matrix{} : pass.stack.push(dtype_, x.rows, x.cols);
    pass.enter_weights(layer.unit);
    pass.enter_gradients(layer.unit);
    if (layer.by_output) {
      const StackScope scratch(pass.scratch());
      const int blocks = table_[layer.linear.weight].num_blocks;
      const bool combines = dx && (blocks > 1 || pass.tensor != nullptr);
      BlockSum products(dx);
      if (combines) {
        products = push_blocks(pass, dtype_, x.rows, x.cols, blocks);
      }
      column_linear_backward(pass, layer.linear, x, d, products);
      if (combines) {
        launch(pass.queue,
               CombineBlocks{
                   .blocks = sum_for_own_rows(pass, table_.split(), products, products.first.rows),
                   .out = dx});
      }
    } else {
      row_linear_backward(pass, layer.linear, x, d, dx, {});
    }
    pass.leave_weights(layer.unit);
    pass.gradients_ready(table_[layer.linear.weight].offset);
    if (dx) {
      launch(pass.queue,
             ActivationBackward{
                 .activation = Activation::kRelu, .x = z_[index - 1], .dy = dx, .dx = dx});
    }
    d = dx;
  }
  pass.gradients_ready(0);
  pass.stack.pop_to(base_);
}

const std::int32_t* Mlp::evaluate(Pass& pass, const ModelInput& batch) {
  forward(pass, batch);
  const std::int32_t* const predictions = loss(pass, batch, 1.0F, {});
  pass.stack.pop_to(base_);
  return predictions;
}

double Mlp::operations_per_target() const {
  double weights = 0;
  for (const Layer& layer : layers_) {
    weights += static_cast<double>(layer.inputs * layer.outputs);
  }
  return 6.0 * weights;
}

}  // namespace

std::unique_ptr<Model> make_mlp(const ModelConfig& config, DType dtype, TensorSplit split) {
  if (config.layer_sizes.size() < 2) {
    throw_request_error(
        "model.layer_sizes has {} entries: an mlp needs at least two, inputs and outputs, such as "
        "[784, 10]",
        config.layer_sizes.size());
  }
  if (config.dropout > 0) {
    throw_request_error("model.dropout = {}: an mlp has no dropout; valid: 0", config.dropout);
  }
  return std::make_unique<Mlp>(config, dtype, split);
}

}  // namespace lockstep
