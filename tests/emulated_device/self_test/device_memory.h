// Device memory of the self tests.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_check.h"

namespace lockstep::self_test {

/// `count` values on the device, from the host or zero.
template <typename T>
class DeviceValues {
 public:
  explicit DeviceValues(const std::vector<T>& values) : count_(values.size()) {
    void* address = nullptr;
    check_cuda(cudaMalloc(&address, count_ * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(address);
    check_cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
               "cudaMemcpy");
  }
  explicit DeviceValues(std::size_t count) : DeviceValues(std::vector<T>(count)) {}
  ~DeviceValues() { cudaFree(data_); }
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> download() const {
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::vector<T> values(count_);
    check_cuda(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return values;
  }

 private:
  std::size_t count_ = 0;
  T* data_ = nullptr;
};

}  // namespace lockstep::self_test
