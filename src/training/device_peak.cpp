#include "training/device_peak.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "comm/accelerator.h"
#include "device/cpu/cpu_queue.h"
#include "kernels/cpu/peak.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace {

constexpr int kRounds = 5;
constexpr double kNanoseconds = 1e9;

double measure_product(Queue& queue, DType dtype, long size) {
  const std::size_t bytes = bytes_of(size * size, dtype);
  const Memory memory = queue.allocate(3 * bytes);
  const auto matrix = [&](std::size_t index) {
    return Matrix(memory.data() + index * bytes, dtype, size, size);
  };
  const MatMul product{.a = matrix(0), .b = matrix(1), .transpose_b = true, .c = matrix(2)};
  launch(queue, product);  // what is done once
  queue.synchronize();
  std::array<double, kRounds> rates{};
  for (double& rate : rates) {
    const std::int64_t begin = now_ns();
    launch(queue, product);
    queue.synchronize();
    rate = product.cost().operations * kNanoseconds / static_cast<double>(now_ns() - begin);
  }
  std::nth_element(rates.begin(), rates.begin() + kRounds / 2, rates.end());
  return rates[kRounds / 2];
}

}  // namespace

double measure_device_peak(Queue& queue, DType dtype) {
  switch (queue.kind()) {
    case DeviceKind::kCpu:
      return measure_peak_operations(static_cast<CpuQueue&>(queue), dtype);
    case DeviceKind::kCuda:
      return measure_product(queue, dtype, accelerator()->large_product(queue));
    case DeviceKind::kDry:
      break;
  }
  return 0;
}

}  // namespace lockstep
