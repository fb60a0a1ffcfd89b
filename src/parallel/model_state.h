// What a run trains: the weights and the optimiser's state in flat buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "device/memory.h"
#include "nn/parameter_table.h"
#include "nn/weights.h"
#include "optim/optimizer.h"

namespace lockstep {

/// f32 master weights, their copy in the dtype of the matrix products (none for f32: layers then
/// read the master weights) and the optimiser's state.
class ModelState {
 public:
  ModelState(const ParameterTable& table,
             DType dtype,
             const OptimizerConfig& optimizer,
             Queue& queue);

  /// Initial values of `seed`; the optimiser's state becomes zero.
  void initialise(std::uint64_t seed);

  /// Brings the copy up to date after the master weights were set from outside.
  void refresh_compute_copy();

  /// One update of all parameters.
  void update(const float* gradients, double lr, float gradient_scale, long update_number);

  [[nodiscard]] Weights weights() const;
  [[nodiscard]] const ParameterTable& table() const { return *table_; }
  [[nodiscard]] float* master() const { return master_.as<float>(); }
  [[nodiscard]] const Optimizer& optimizer() const { return optimizer_; }

  [[nodiscard]] std::size_t master_bytes() const { return master_.bytes(); }
  [[nodiscard]] std::size_t compute_bytes() const { return compute_.bytes(); }

  /// XXH3 over the values the user sees, parameter by parameter in table order: weights and
  /// optimiser state. Equal for equal values whatever the number of blocks.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  const ParameterTable* table_;
  Queue* queue_;
  DType dtype_;
  Memory master_;
  Memory compute_;
  Optimizer optimizer_;
};

/// Copies a parameter from a flat buffer into the user's row-major order, and back.
void copy_to_canonical(const Parameter& parameter, const float* flat, float* canonical);
void copy_from_canonical(const Parameter& parameter, const float* canonical, float* flat);

}  // namespace lockstep
