// A multi-layer perceptron: linear layers with ReLU between them, for classification.
#pragma once

#include <memory>

#include "nn/model.h"

namespace lockstep {

/// architecture mlp. Layers are cut in pairs: the first of a pair by its outputs, the second by its
/// inputs, so that a split costs one sum a pair; a last layer without a partner is not cut.
/// Initialisation as PyTorch's nn.Linear: uniform in +-1/sqrt(inputs), biases too.
std::unique_ptr<Model> make_mlp(const ModelConfig& config, DType dtype, TensorSplit split);

}  // namespace lockstep
