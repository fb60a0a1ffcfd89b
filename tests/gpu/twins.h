// The same kernel on the CPU and on a CUDA device (a real or the emulated one), with the same operands.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "device/cpu/cpu_queue.h"
#include "device/cuda/cuda_queue.h"
#include "kernels/cuda/backend.h"
#include "tensor/matrix.h"

namespace lockstep {

/// A queue of each device. CUDA kernels write here and are compared with what the CPU's wrote.
class TwinQueues {
 public:
  TwinQueues() : cuda_(choose_cuda_device(0)) {}
  [[nodiscard]] CpuQueue& cpu() { return cpu_; }
  [[nodiscard]] CudaQueue& cuda() { return cuda_; }

 private:
  CpuQueue cpu_{1};
  CudaQueue cuda_;
};

/// Bytes on both devices. What stands in front of and behind them on the device is not ours: writing there is
/// found by compute-sanitizer or the emulated device.
class TwinBytes {
 public:
  TwinBytes(TwinQueues& queues, std::size_t bytes)
      : queues_(&queues), host_(bytes), device_(queues.cuda().allocate(bytes)) {}

  [[nodiscard]] std::byte* cpu() { return host_.data(); }
  [[nodiscard]] std::byte* cuda() const { return device_.data(); }
  /// The CPU's bytes become the device's.
  void upload() { queues_->cuda().copy_to_device(device_.data(), host_.data(), host_.size()); }
  [[nodiscard]] std::vector<std::byte> download() const {
    std::vector<std::byte> bytes(device_.bytes());
    queues_->cuda().copy_to_host(bytes.data(), device_.data(), bytes.size());
    return bytes;
  }

 private:
  TwinQueues* queues_;
  std::vector<std::byte> host_;
  Memory device_;
};

/// `count` values of one type on both devices.
template <typename T>
class TwinArray {
 public:
  TwinArray(TwinQueues& queues, const std::vector<T>& values)
      : count_(values.size()), bytes_(queues, values.size() * sizeof(T)) {
    if (count_ > 0) {
      std::memcpy(bytes_.cpu(), values.data(), values.size() * sizeof(T));
    }
    bytes_.upload();
  }

  [[nodiscard]] T* cpu() { return reinterpret_cast<T*>(bytes_.cpu()); }
  [[nodiscard]] T* cuda() const { return reinterpret_cast<T*>(bytes_.cuda()); }
  [[nodiscard]] std::vector<T> from_cpu() { return {cpu(), cpu() + count_}; }
  [[nodiscard]] std::vector<T> from_cuda() const {
    std::vector<T> values(count_);
    const std::vector<std::byte> bytes = bytes_.download();
    if (count_ > 0) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    return values;
  }

 private:
  std::size_t count_;
  TwinBytes bytes_;
};

/// A matrix on both devices, normally distributed, with `padding` elements behind every row that nothing may
/// write.
class TwinMatrix {
 public:
  TwinMatrix(TwinQueues& queues,
             DType dtype,
             long rows,
             long cols,
             std::uint32_t seed,
             double scale = 1.0,
             long padding = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        bytes_(queues, bytes_of(rows * (cols + padding), dtype)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, static_cast<float>(scale));
    for (long i = 0; i < rows_ * stride_; ++i) {
      set(i, normal(random));
    }
    bytes_.upload();
  }

  [[nodiscard]] Matrix cpu() { return {bytes_.cpu(), dtype_, rows_, cols_, stride_}; }
  [[nodiscard]] Matrix cuda() const { return {bytes_.cuda(), dtype_, rows_, cols_, stride_}; }
  /// All elements in order, padding included.
  [[nodiscard]] std::vector<float> from_cpu() { return decode(bytes_.cpu()); }
  [[nodiscard]] std::vector<float> from_cuda() const {
    const std::vector<std::byte> bytes = bytes_.download();
    return decode(bytes.data());
  }
  [[nodiscard]] bool is_padding(std::size_t index) const {
    return static_cast<long>(index) % stride_ >= cols_;
  }

 private:
  void set(long index, float value) {
    if (dtype_ == DType::kF32) {
      reinterpret_cast<float*>(bytes_.cpu())[index] = value;
    } else {
      reinterpret_cast<BFloat16*>(bytes_.cpu())[index] = to_bfloat16(value);
    }
  }
  [[nodiscard]] std::vector<float> decode(const std::byte* from) const {
    std::vector<float> values(static_cast<std::size_t>(rows_ * stride_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype_ == DType::kF32) {
        std::memcpy(&values[i], from + 4 * i, 4);
      } else {
        BFloat16 value;
        std::memcpy(&value, from + 2 * i, 2);
        values[i] = to_float(value);
      }
    }
    return values;
  }

  DType dtype_;
  long rows_;
  long cols_;
  long stride_;
  TwinBytes bytes_;
};

}  // namespace lockstep
