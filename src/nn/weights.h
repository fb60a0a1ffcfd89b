// Typed views of the flat buffers: what layers compute with.
#pragma once

#include <cstdint>
#include <vector>

#include "base/integers.h"
#include "device/cpu/thread_pool.h"
#include "nn/parameter_table.h"
#include "tensor/matrix.h"

namespace lockstep {

/// The weights in the dtype of the matrix products.
class Weights {
 public:
  Weights(const ParameterTable& table, void* flat, DType dtype)
      : table_(&table), flat_(flat), dtype_(dtype) {}
  /// Units that stand apart: bases[u] is where the first element of unit u is, valid while it is there.
  Weights(const ParameterTable& table, const std::vector<void*>& bases, DType dtype)
      : table_(&table), bases_(&bases), dtype_(dtype) {}

  /// Block `block` of a parameter: [block_rows x block_cols].
  [[nodiscard]] Matrix block(int parameter, int block) const;
  /// The whole of a parameter that is not split.
  [[nodiscard]] Matrix whole(int parameter) const { return block(parameter, 0); }

  [[nodiscard]] const ParameterTable& table() const { return *table_; }
  [[nodiscard]] DType dtype() const { return dtype_; }

 private:
  const ParameterTable* table_;
  void* flat_ = nullptr;
  const std::vector<void*>* bases_ = nullptr;
  DType dtype_;
};

/// Gradients in f32, laid out like the weights behind the region of the tied input side.
class Gradients {
 public:
  Gradients(const ParameterTable& table, float* flat) : table_(&table), flat_(flat) {}
  /// Units that stand apart, as in Weights; the last base is that of the tied input side.
  Gradients(const ParameterTable& table, const std::vector<float*>& bases)
      : table_(&table), bases_(&bases) {}

  [[nodiscard]] Matrix block(int parameter, int block) const;
  [[nodiscard]] float* vector(int parameter, int block = 0) const {
    return this->block(parameter, block).as<float>();
  }
  /// The input side of the tied parameter.
  [[nodiscard]] float* tied_input() const { return bases_ == nullptr ? flat_ : bases_->back(); }

 private:
  const ParameterTable* table_;
  float* flat_ = nullptr;
  const std::vector<float*>* bases_ = nullptr;
};

/// Fills values [range.begin, range.end) of a flat buffer laid out by `table`, at `values` (zero on
/// entry), with initial values: a pure function of seed, parameter name and element index, whatever
/// the number of blocks.
void initialise(const ParameterTable& table,
                std::uint64_t seed,
                IndexRange range,
                float* values,
                ThreadPool& threads);

}  // namespace lockstep
