// The buffers of a model that lies whole on one rank: what checkpoints read and write.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/parameter_table.h"
#include "optim/optimizer.h"

namespace lockstep {

/// Flat buffers laid out by `table`, which has all blocks of all parameters. Owns nothing.
struct ModelView {
  const ParameterTable* table = nullptr;
  float* weights = nullptr;
  std::vector<Optimizer::State> states;  ///< of the optimiser

  /// Weights, then the states.
  [[nodiscard]] std::vector<float*> buffers() const;
};

/// XXH3 over the values the user sees, parameter by parameter in table order: weights, then the
/// optimiser's states. Equal for equal values whatever the number of blocks.
std::uint64_t hash_of_model(const ModelView& model);

/// Copies a parameter from a flat buffer into the user's row-major order, and back. Of a table that
/// does not have all blocks only what is stored.
void copy_to_canonical(const Parameter& parameter, const float* flat, float* canonical);
void copy_from_canonical(const Parameter& parameter, const float* canonical, float* flat);

}  // namespace lockstep
