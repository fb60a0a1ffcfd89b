// Times kernels on a device, beside what the device can copy and multiply at most.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bfloat16.h"
#include "base/function_ref.h"
#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// How much time goes into a figure.
struct TimingEffort {
  double kernel_seconds = 0.4;   ///< repetitions of one kernel, about; at least a few take place
  double batch_seconds = 0.005;  ///< least time between two waits for the device
};

/// A launch, timed in batches of launches: the queue is waited for before and after each batch.
struct Timing {
  double median_seconds = 0;
  double least_seconds = 0;
  double most_seconds = 0;
  long batches = 0;
  long launches = 0;  ///< of a batch
};

struct KernelTiming {
  std::string kernel;  ///< the op's kName
  std::string role;    ///< what it does in a step: "qkv, input gradient"
  std::string shape;   ///< "8192 x 768 bf16"
  Timing timing;
  Cost cost;  ///< what the op itself says
};

/// What the device reached in the same run.
struct DeviceLimits {
  std::size_t copied_bytes = 0;  ///< by each copy
  double bytes_per_second = 0;   ///< of copies, reads and writes added
  long product_size = 0;         ///< rows and columns of the square matrices
  DType product_dtype = DType::kBF16;
  double operations_per_second = 0;

  /// Time below which work of this cost would beat the copy or the product. Of what fits in a cache,
  /// bytes move faster than in the copy.
  [[nodiscard]] double least_seconds(Cost cost) const;
  /// least_seconds over the measured time.
  [[nodiscard]] double fraction_of(const KernelTiming& kernel) const {
    return least_seconds(kernel.cost) / kernel.timing.median_seconds;
  }
};

/// Operands with values like those of a training, and measurements of ops on them. `release` gives the
/// memory back between groups of kernels; none is taken while repetitions run.
class KernelTimer {
 public:
  /// `queue`: of a CPU, or of a CUDA device that is accelerator()'s.
  KernelTimer(Queue& queue, const TimingEffort& effort);

  [[nodiscard]] Queue& queue() { return queue_; }
  [[nodiscard]] const std::vector<KernelTiming>& timings() const { return timings_; }

  /// Random values, uniform in [-0.5, 0.5).
  Matrix matrix(DType dtype, long rows, long cols);
  float* values(long count) { return matrix(DType::kF32, 1, count).as<float>(); }
  Matrix zero_matrix(DType dtype, long rows, long cols);
  float* zeros(long count) { return zero_matrix(DType::kF32, 1, count).as<float>(); }
  /// Random ids below `end`.
  std::int32_t* ids(long count, long end);
  /// Memory of the host that kernels write as well.
  template <typename T>
  T* results(long count) {
    memory_.push_back(queue_.allocate_for_host(static_cast<std::size_t>(count) * sizeof(T)));
    return memory_.back().template as<T>();
  }
  void release();

  template <typename Op>
  void measure(std::string role, std::string shape, const Op& op) {
    const auto once = [&] { launch(queue_, op); };
    timings_.push_back({Op::kName, std::move(role), std::move(shape), time(once), op.cost()});
  }

  /// Of a copy between two buffers, and a product of square matrices whose result is rounded.
  DeviceLimits measure_limits(std::size_t copied_bytes, long product_size, DType product_dtype);

 private:
  void fill(const Matrix& matrix);
  Timing time(FunctionRef<void()> once);
  double seconds_of(FunctionRef<void()> once, long launches);
  double copy_rate(std::size_t bytes);

  Queue& queue_;
  TimingEffort effort_;
  std::vector<float> pattern_;
  std::vector<BFloat16> rounded_pattern_;
  std::vector<Memory> memory_;
  std::vector<double> seconds_;  ///< of batches
  std::vector<KernelTiming> timings_;
};

}  // namespace lockstep
