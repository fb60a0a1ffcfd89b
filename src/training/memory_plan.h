// What a rank's memory will be, before any of it is taken: the same code, run on the dry device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nn/model.h"

namespace lockstep {

/// Bytes by kind.
struct MemoryPlan {
  std::size_t parameters = 0;  ///< f32 master weights
  std::size_t compute = 0;     ///< their copy in the dtype of the products
  std::size_t gradients = 0;   ///< accumulators
  std::size_t optimizer = 0;
  std::size_t activations = 0;  ///< the activation stack at its peak
  std::size_t workspace = 0;    ///< scratch of the largest kernel
  std::size_t messages = 0;     ///< what reductions between hosts send from and receive in
  std::size_t batches = 0;      ///< input buffers
  std::size_t staging = 0;      ///< copy from which a checkpoint is written
  [[nodiscard]] std::size_t total() const;
  /// "weights 47.3 MiB, gradients ...": the kinds that are not zero.
  [[nodiscard]] std::string text() const;
};

/// Stack and scratch that training and evaluating micro-batches of any of `batch_sizes` takes.
struct PassMemory {
  std::size_t activations = 0;
  std::size_t workspace = 0;
};

/// Which passes a run makes.
enum class PassKind : std::uint8_t { kTrain, kEvaluate };

/// Runs forward and backward, or evaluation, of each size on the dry device. Cost: some microseconds
/// a layer; no memory.
PassMemory measure_pass(Model& model,
                        DType dtype,
                        PassKind kind,
                        std::span<const long> batch_sizes);

/// Bytes of memory that are free on this host, as the system says; 0 if it does not.
std::size_t available_host_memory();

}  // namespace lockstep
