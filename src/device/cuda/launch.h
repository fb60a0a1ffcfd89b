// How kernels are started and get their shared memory: the same source for nvcc and for the emulated device
// (tests/emulated_device). Only for .cu files.
#pragma once

#include <cstddef>
#include <utility>

#include <cuda_runtime.h>

#include "device/cuda/cuda_check.h"
#ifdef LOCKSTEP_EMULATED_DEVICE
#include "emulated_device/kernel_launch.h"
#endif

namespace lockstep {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a block
};

#ifdef LOCKSTEP_EMULATED_DEVICE

/// As below, on the emulated device.
template <typename... Parameters, typename... Arguments>
void launch_kernel(const LaunchShape& shape,
                   cudaStream_t stream,
                   void (*kernel)(Parameters...),
                   Arguments&&... arguments) {
  check_cuda(emulated::enqueue_kernel(shape.grid,
                                      shape.block,
                                      shape.shared_bytes,
                                      stream,
                                      kernel,
                                      std::forward<Arguments>(arguments)...),
             "starting a kernel");
}

#define LOCKSTEP_SHARED_MEMORY(Type, name) \
  Type* const name = static_cast<Type*>(::lockstep::emulated::shared_memory())

#else

/// Shared memory of a block beyond this has to be asked for.
inline constexpr std::size_t kDefaultSharedBytes = std::size_t{48} << 10U;

/// Puts `kernel(arguments...)` into `stream`. Throws Error if it cannot be started.
template <typename... Parameters, typename... Arguments>
void launch_kernel(const LaunchShape& shape,
                   cudaStream_t stream,
                   void (*kernel)(Parameters...),
                   Arguments&&... arguments) {
  if (shape.shared_bytes > kDefaultSharedBytes) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               "asking for a kernel's shared memory");
  }
  kernel<<<shape.grid, shape.block, shape.shared_bytes, stream>>>(
      static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  check_cuda(cudaGetLastError(), "starting a kernel");
}

/// Declares `Type* name`, the block's dynamic shared memory, on a multiple of 128 bytes: for kernels, which have no
/// other shared memory. Undefined until written; a kernel may name it once, as a struct of all it needs.
#define LOCKSTEP_SHARED_MEMORY(Type, name)                                  \
  extern __shared__ __align__(128) unsigned char lockstep_shared_memory_[]; \
  Type* const name = reinterpret_cast<Type*>(lockstep_shared_memory_)

#endif

}  // namespace lockstep
