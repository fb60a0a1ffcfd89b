// A model: one rank's maths, from a micro-batch to gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/integers.h"
#include "nn/model_config.h"
#include "nn/parameter_table.h"
#include "nn/pass.h"

namespace lockstep {

/// Which layers of a model a stage of a pipeline has.
struct ModelPart {
  int first_layer = 0;
  int end_layer = 0;
  bool embeds = true;    ///< has the embedding
  bool has_head = true;  ///< has the last norm, the head and the loss
};

/// A model, or the part of one that is a stage of a pipeline. Built from the parameters it declares in
/// its table. Layers push what their backward needs on the pass's activation stack; `backward` pops
/// it. The same code runs on every device, the dry one included.
class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Those of all parts that share the table.
  [[nodiscard]] const ParameterTable& parameters() const { return table_; }
  /// Own elements of the flat parameter buffer.
  [[nodiscard]] IndexRange own_elements() const { return own_elements_; }

  /// Several micro-batches may be between forward and backward, each in its slot (PassBoundary). One
  /// without a call. Allocates.
  virtual void reserve_slots(int count) = 0;

  /// Brings tables that its kernels read to the queue's device, if that is not the host. Once, before the
  /// first pass on that device. Allocates.
  virtual void prepare(Queue& /*queue*/) {}
  /// Bytes that `prepare` took.
  [[nodiscard]] virtual std::size_t table_bytes() const { return 0; }

  /// The units whose weights a pass reads, in order; a unit may come twice.
  enum class PassKind : std::uint8_t {
    kForward,
    kBackward,
    kEvaluate,
    kBackwardInput,
    kBackwardWeight
  };
  [[nodiscard]] virtual std::vector<int> weight_order(PassKind kind) const = 0;

  /// Pushes the activations of `batch`.
  virtual void forward(Pass& pass, const ModelInput& batch) = 0;

  /// Computes the loss (Pass::loss) and all gradients of the micro-batch whose forward was the last one, and
  /// pops its activations. Gradients are of loss_scale * (sum of the losses of trained targets).
  /// Or one part of that, as pass.part says (of a transformer only): the input part gives the loss and
  /// leaves more on the stack, the weight part pops all. Parts of several micro-batches, each in its
  /// slot, may follow in any order. Cost of the two: that of the whole, and the product that gives the
  /// logits once more, which are too large to keep.
  virtual void backward(Pass& pass, const ModelInput& batch, float loss_scale) = 0;

  /// Loss without gradients; leaves the stack as it was. Of a classifier it returns the classes with the
  /// largest logits, one an image, in memory of the device that is valid until something else is pushed on
  /// the pass's stack; else null.
  virtual const std::int32_t* evaluate(Pass& pass, const ModelInput& batch) = 0;

  /// Floating-point operations of forward and backward a target, for the utilisation shown.
  [[nodiscard]] virtual double operations_per_target() const = 0;

 protected:
  /// Declares its parameters behind those that `table` has.
  explicit Model(std::shared_ptr<ParameterTable> table)
      : shared_(std::move(table)), table_(*shared_), own_elements_{table_.flat_size(), 0} {}
  /// To be called when all parameters are declared.
  void end_of_declarations() { own_elements_.end = table_.flat_size(); }

 private:
  std::shared_ptr<ParameterTable> shared_;

 protected:
  ParameterTable& table_;

 private:
  IndexRange own_elements_;
};

/// `dtype` is that of weights, activations and matrix products. Throws RequestError for
/// configurations that are impossible.
std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, TensorSplit split);

/// Parts of one model on one rank, with one table. Of a transformer only.
std::vector<std::unique_ptr<Model>> make_model_parts(const ModelConfig& config,
                                                     DType dtype,
                                                     TensorSplit split,
                                                     const std::vector<ModelPart>& parts);

}  // namespace lockstep
