// A list of faults that the emulated device has to find, each with a twin without it.
#pragma once

#include <span>
#include <stdexcept>
#include <vector>

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_check.h"

namespace lockstep::faults {

struct Fault {
  const char* name;
  const char* description;
  /// What the message has to contain; "wrong value" where only the result tells.
  const char* message;
  int ranks;
  void (*run)(bool wrong);
};

std::span<const Fault> kernel_faults();
std::span<const Fault> stream_faults();
std::span<const Fault> nccl_faults();

/// Memory of the device, freed at the end; undefined if made from a number.
template <typename T>
class Values {
 public:
  explicit Values(std::size_t count) : count_(count) {
    void* address = nullptr;
    check_cuda(cudaMalloc(&address, count * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(address);
  }
  explicit Values(const std::vector<T>& values) : Values(values.size()) {
    check_cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
               "cudaMemcpy");
  }
  ~Values() {
    cudaDeviceSynchronize();
    cudaFree(data_);
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> values(count_);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return values;
  }

 private:
  std::size_t count_ = 0;
  T* data_ = nullptr;
};

inline void expect(bool is_right) {
  if (!is_right) {
    throw std::runtime_error("wrong value");
  }
}

/// A stream that does not wait for the default stream.
class Stream {
 public:
  Stream() {
    check_cuda(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "making a stream");
  }
  ~Stream() {
    cudaStreamSynchronize(handle_);
    cudaStreamDestroy(handle_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

/// Lets `after` wait for what is in `before`.
inline void order(const Stream& before, const Stream& after) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  check_cuda(cudaEventRecord(event, before.get()), "recording an event");
  check_cuda(cudaStreamWaitEvent(after.get(), event, 0), "waiting for an event");
  check_cuda(cudaEventDestroy(event), "destroying an event");
}

}  // namespace lockstep::faults
