// How launch_kernel (device/cuda/launch.h) puts a kernel into a stream of the emulated device.
#pragma once

#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>

#include <cuda_runtime_api.h>

#include "emulated_device/device_functions.h"

namespace lockstep::emulated {

struct KernelLaunch {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
  const void* kernel = nullptr;            ///< its address, which names it
  std::shared_ptr<const void> parameters;  ///< constant memory to the kernel
  std::size_t parameter_bytes = 0;
  void (*run_thread)(const void* parameters) = nullptr;
};

/// Puts the kernel into `stream`; what it cannot be started with is returned as CUDA does.
cudaError_t enqueue(KernelLaunch launch, cudaStream_t stream);

template <typename... Parameters>
struct BoundKernel {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> parameters;
};

template <typename... Parameters, typename... Arguments>
cudaError_t enqueue_kernel(dim3 grid,
                           dim3 block,
                           std::size_t shared_bytes,
                           cudaStream_t stream,
                           void (*kernel)(Parameters...),
                           Arguments&&... arguments) {
  using Bound = BoundKernel<Parameters...>;
  KernelLaunch launch;
  launch.grid = grid;
  launch.block = block;
  launch.shared_bytes = shared_bytes;
  launch.kernel = reinterpret_cast<const void*>(kernel);
  launch.parameters = std::make_shared<const Bound>(Bound{
      kernel,
      std::tuple<Parameters...>(static_cast<Parameters>(std::forward<Arguments>(arguments))...)});
  launch.parameter_bytes = sizeof(Bound);
  launch.run_thread = [](const void* parameters) {
    const auto& bound = *static_cast<const Bound*>(parameters);
    std::apply(bound.kernel, bound.parameters);
  };
  return enqueue(std::move(launch), stream);
}

}  // namespace lockstep::emulated
