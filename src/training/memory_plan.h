// What a rank's memory will be, before any of it is taken: the same code, run on the dry device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nn/model.h"
#include "parallel/model_parts.h"
#include "parallel/stage_runner.h"

namespace lockstep {

/// Bytes by kind.
struct MemoryPlan {
  std::size_t parameters = 0;  ///< f32 master weights
  std::size_t compute = 0;     ///< their copy in the dtype of the products
  std::size_t gradients = 0;   ///< accumulators
  std::size_t optimizer = 0;
  std::size_t activations = 0;  ///< the activation stack at its peak
  std::size_t workspace = 0;    ///< scratch of the largest kernel
  std::size_t messages = 0;     ///< what is exchanged with other ranks, beside the above
  std::size_t tables = 0;   ///< tables and a micro-batch's inputs on a device that is not the host
  std::size_t batches = 0;  ///< input buffers
  std::size_t results = 0;  ///< what kernels tell the host: losses, norms
  std::size_t staging = 0;  ///< copy from which a checkpoint is written
  struct Kind {
    const char* name = "";
    std::size_t bytes = 0;
  };
  /// All of the above, as people call them.
  [[nodiscard]] std::array<Kind, 11> kinds() const;
  [[nodiscard]] std::size_t total() const;
  /// What lies in memory of the host where the device is another one: batches, results, checkpoint copy.
  [[nodiscard]] std::size_t host() const { return batches + results + staging; }
  [[nodiscard]] std::size_t device() const { return total() - host(); }
  /// "weights 47.3 MiB, gradients ...": the kinds that are not zero.
  [[nodiscard]] std::string text() const;
};

/// What passes of micro-batches take.
struct PassMemory {
  StageRunner::StackBytes stacks;
  std::size_t workspace = 0;
  TensorGroup::Sizes tensor;  ///< of exchanges in the tensor group

  /// Adds what other passes on the same memory take.
  void merge(const PassMemory& other);
};

/// Which passes a run makes.
enum class PassUse : std::uint8_t { kTrain, kEvaluate };

/// How passes are measured.
struct PassMeasure {
  DeviceKind device = DeviceKind::kCpu;
  DType dtype = DType::kF32;
  PassUse kind = PassUse::kTrain;
  std::vector<long> batch_sizes;
  Recompute recompute = Recompute::kNone;
  bool splits_backward = false;  ///< backward passes are made in two parts
  /// A stage of a pipeline: columns of what stages hand over, and its rows a sample; 0: no pipeline.
  long boundary_cols = 0;
  long boundary_rows = 0;
  int sharing_ranks = 1;  ///< tensor ranks that share a kv head
};

/// Runs forward and backward, or evaluation, of each chunk and size on the dry device. Cost: some
/// microseconds a layer; no memory.
PassMemory measure_passes(const ModelChunks& chunks, const PassMeasure& measure);

/// Bytes of memory that are free on this host, as the system says; 0 if it does not. For tests the
/// environment variable LOCKSTEP_TEST_FREE_MEMORY says it instead.
std::size_t available_host_memory();

}  // namespace lockstep
