// Every kernel, timed at the shapes of a transformer's training step.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "nn/model_config.h"
#include "planning/kernel_timer.h"

namespace lockstep {

struct KernelBenchConfig {
  ModelConfig
      model;  ///< a transformer with its vocabulary; kernels that only the other family has are timed too
  long batch = 0;  ///< samples of a micro-batch
  DType dtype = DType::kBF16;
  /// Of the flat buffers that optimisers and sums go through; fewer where the model has fewer parameters.
  long most_elements = 0;
  std::size_t copied_bytes = 0;  ///< of the copy and
  long product_size = 0;         ///< the product that are taken for the limits
  TimingEffort effort;
};

/// GPT-2 124M in bf16: 8 x 1024 tokens on a GPU, 1 x 256 on a CPU, where all of it takes at most a minute.
KernelBenchConfig usual_kernel_bench(DeviceKind device);

struct KernelBenchReport {
  KernelBenchConfig config;
  std::string device;  ///< in words
  DeviceLimits limits;
  std::vector<KernelTiming> kernels;
};

/// Measures the limits, then the kernels, one after the other on `queue`. Takes memory for one group of
/// kernels at a time: the largest are the head's weights with their gradients, or the flat buffers.
/// Errors: RequestError for sizes that do not go together; Error when memory is short.
KernelBenchReport measure_kernels(Queue& queue, const KernelBenchConfig& config);

/// A table for people.
std::string text_of(const KernelBenchReport& report);
/// One JSON object and a line end; in seconds, bytes and operations.
std::string json_of(const KernelBenchReport& report);

}  // namespace lockstep
