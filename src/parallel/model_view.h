// A whole model as checkpoints read and write it, wherever its parts lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nn/parameter_table.h"
#include "optim/optimizer.h"

namespace lockstep {

/// Single tensors of a model whose parts lie on many ranks, in the user's row-major order.
class TensorAccess {
 public:
  TensorAccess() = default;
  virtual ~TensorAccess() = default;
  TensorAccess(const TensorAccess&) = delete;
  TensorAccess& operator=(const TensorAccess&) = delete;

  /// `buffer` 0 are the weights, the others the optimiser's states.
  virtual void read(std::size_t buffer, const Parameter& parameter, float* canonical) = 0;
  virtual void write(std::size_t buffer, const Parameter& parameter, const float* canonical) = 0;
};

/// Flat buffers laid out by `table`, which has all blocks of all parameters, or access to tensors that
/// are not here. Owns nothing.
struct ModelView {
  const ParameterTable* table = nullptr;
  float* weights = nullptr;
  std::vector<Optimizer::State> states;  ///< of the optimiser
  TensorAccess* access = nullptr;        ///< then the buffers above are null

  /// Weights, then the states.
  [[nodiscard]] std::vector<float*> buffers() const;
  [[nodiscard]] std::size_t num_buffers() const { return 1 + states.size(); }

  /// A parameter of `table` in buffer 0 (weights) or 1, 2, ... (states), in the user's row-major order.
  void read(std::size_t buffer, const Parameter& parameter, float* canonical) const;
  void write(std::size_t buffer, const Parameter& parameter, const float* canonical) const;

 private:
  [[nodiscard]] float* flat(std::size_t buffer) const {
    return buffer == 0 ? weights : states[buffer - 1].data;
  }
};

/// Elements of the largest parameter: what whoever reads a model tensor by tensor needs room for.
long largest_tensor(const ParameterTable& table);

/// XXH3 over the values the user sees, parameter by parameter in table order: weights, then the
/// optimiser's states. Equal for equal values whatever the number of blocks. `room` is for
/// largest_tensor elements.
std::uint64_t hash_of_model(const ModelView& model, float* room);
/// With room of its own.
std::uint64_t hash_of_model(const ModelView& model);

/// Copies a parameter from a flat buffer into the user's row-major order, and back. Of a table that
/// does not have all blocks only what is stored.
void copy_to_canonical(const Parameter& parameter, const float* flat, float* canonical);
void copy_from_canonical(const Parameter& parameter, const float* canonical, float* flat);

}  // namespace lockstep
