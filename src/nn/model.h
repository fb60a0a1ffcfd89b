// A model: one rank's maths, from a micro-batch to gradients.
#pragma once

#include <memory>

#include "nn/model_config.h"
#include "nn/parameter_table.h"
#include "nn/pass.h"

namespace lockstep {

/// Built from the parameter table it declares. Layers push what their backward needs on the pass's
/// activation stack; `backward` pops it. The same code runs on every device, the dry one included.
class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ParameterTable& parameters() const { return table_; }

  /// Pushes the activations of `batch`.
  virtual void forward(Pass& pass, const ModelInput& batch) = 0;

  /// Computes the loss and all gradients of the micro-batch whose forward was the last one, and
  /// pops its activations. Gradients are of loss_scale * (sum of the losses of trained targets).
  virtual LossPart backward(Pass& pass, const ModelInput& batch, float loss_scale) = 0;

  /// Loss (and predictions) without gradients; leaves the stack as it was.
  virtual LossPart evaluate(Pass& pass, const ModelInput& batch) = 0;

  /// Floating-point operations of forward and backward a target, for the utilisation shown.
  [[nodiscard]] virtual double operations_per_target() const = 0;

 protected:
  explicit Model(int num_blocks) : table_(num_blocks) {}

  ParameterTable table_;
};

/// `dtype` is that of weights, activations and matrix products. Throws RequestError for
/// configurations that are impossible.
std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, int virtual_tensor);

}  // namespace lockstep
