// The CUDA runtime's functions about memory.
#include <cstring>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include "emulated_device/access_checks.h"
#include "emulated_device/fault.h"
#include "emulated_device/memory.h"
#include "emulated_device/settings.h"
#include "emulated_device/streams.h"

namespace lockstep::emulated {
namespace {

/// Rows of `width` bytes, `to_pitch` and `from_pitch` bytes apart.
struct Copy {
  std::byte* to = nullptr;
  std::size_t to_pitch = 0;
  const std::byte* from = nullptr;
  std::size_t from_pitch = 0;
  std::size_t width = 0;
  std::size_t height = 1;
  std::shared_ptr<std::vector<std::byte>> staged;  // pageable memory is read at once
};

class CopyOperation final : public Operation {
 public:
  explicit CopyOperation(Copy copy) : Operation("copy"), copy_(std::move(copy)) {}

  void was_enqueued() override {
    for (std::size_t row = 0; row < copy_.height; ++row) {
      add_pinned_use(copy_.from + row * copy_.from_pitch, copy_.width, false, lane, number);
      add_pinned_use(copy_.to + row * copy_.to_pitch, copy_.width, true, lane, number);
    }
  }

  bool advance() override {
    const bool from_host = kind_of(copy_.from) == MemoryKind::kHost;
    const bool to_host = kind_of(copy_.to) == MemoryKind::kHost;
    const bool is_for_host = kind_of(copy_.to) != MemoryKind::kDevice;
    for (std::size_t row = 0; row < copy_.height; ++row) {
      const std::byte* const from = copy_.from + row * copy_.from_pitch;
      std::byte* const to = copy_.to + row * copy_.to_pitch;
      if (!from_host) {
        check_operation_access(from, copy_.width, Access::kRead, is_for_host);
      }
      if (!to_host) {
        check_operation_access(to, copy_.width, Access::kWrite);
      }
      std::memmove(to, from, copy_.width);
      copy_states(to, from, copy_.width);
    }
    return true;
  }

 private:
  Copy copy_;
};

void check_kind(const Copy& copy, cudaMemcpyKind kind) {
  const bool from_device = kind_of(copy.from) == MemoryKind::kDevice;
  const bool to_device = kind_of(copy.to) == MemoryKind::kDevice;
  const bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (from_device != says_from || to_device != says_to)) {
    fault("a copy of kind {} from {} to {}",
          static_cast<int>(kind),
          describe_address(reinterpret_cast<std::uintptr_t>(copy.from)),
          describe_address(reinterpret_cast<std::uintptr_t>(copy.to)));
  }
}

void stage(Copy& copy) {
  copy.staged = std::make_shared<std::vector<std::byte>>(copy.width * copy.height);
  for (std::size_t row = 0; row < copy.height; ++row) {
    std::memcpy(
        copy.staged->data() + row * copy.width, copy.from + row * copy.from_pitch, copy.width);
  }
  copy.from = copy.staged->data();
  copy.from_pitch = copy.width;
}

cudaError_t submit_copy(Copy copy, cudaMemcpyKind kind, cudaStream_t stream) {
  if (copy.width == 0 || copy.height == 0) {
    return cudaSuccess;
  }
  check_kind(copy, kind);
  const bool captured = is_capturing(stream);
  const bool from_host = kind_of(copy.from) == MemoryKind::kHost;
  const bool to_host = kind_of(copy.to) == MemoryKind::kHost;
  if (from_host && !captured) {
    stage(copy);
  }
  const cudaError_t status =
      submit(stream, [copy] { return std::make_unique<CopyOperation>(copy); });
  return status == cudaSuccess && to_host && !captured ? wait_for_stream(stream) : status;
}

Copy flat_copy(void* to, const void* from, std::size_t bytes) {
  Copy copy;
  copy.to = static_cast<std::byte*>(to);
  copy.from = static_cast<const std::byte*>(from);
  copy.width = bytes;
  return copy;
}

struct Fill {
  std::byte* to = nullptr;
  std::size_t pitch = 0;
  int value = 0;
  std::size_t width = 0;
  std::size_t height = 1;
};

cudaError_t submit_fill(const Fill& fill, cudaStream_t stream) {
  if (fill.width == 0 || fill.height == 0) {
    return cudaSuccess;
  }
  if (kind_of(fill.to) == MemoryKind::kHost) {
    return cudaErrorInvalidValue;
  }
  return submit_work(stream, "memset", [fill] {
    for (std::size_t row = 0; row < fill.height; ++row) {
      std::byte* const to = fill.to + row * fill.pitch;
      check_operation_access(to, fill.width, Access::kWrite);
      std::memset(to, fill.value, fill.width);
    }
  });
}

}  // namespace
}  // namespace lockstep::emulated

using namespace lockstep::emulated;  // NOLINT(google-build-using-namespace): C functions follow

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  const ApiLock lock;
  if (num_devices() == 0) {
    return note_error(cudaErrorNoDevice);
  }
  if (is_capture_strict()) {
    return note_error(cudaErrorStreamCaptureUnsupported);
  }
  if (bytes == 0) {
    *address = nullptr;
    return cudaSuccess;
  }
  *address = allocate_device(current_device(), bytes);
  return note_error(*address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// NVIDIA's waits for the device as a side effect; here what has not been waited for finds the memory gone.
cudaError_t cudaFree(void* address) {
  const ApiLock lock;
  if (address != nullptr) {
    free_device(address);
  }
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** address, std::size_t bytes, cudaStream_t stream) {
  const ApiLock lock;
  *address = allocate_device(device_of_stream(stream), bytes);
  return note_error(*address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  const ApiLock lock;
  return note_error(submit_work(stream, "cudaFreeAsync", [address] { free_device(address); }));
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  const ApiLock lock;
  if (num_devices() == 0) {
    return note_error(cudaErrorNoDevice);
  }
  *address = bytes == 0 ? nullptr : allocate_pinned(bytes);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* address) {
  const ApiLock lock;
  if (address != nullptr) {
    free_pinned(address);
  }
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  const ApiLock lock;
  register_host(address, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  const ApiLock lock;
  unregister_host(address);
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const ApiLock lock;
  *attributes = {};
  const MemoryKind kind = kind_of(address);
  auto* const changeable = const_cast<void*>(address);
  attributes->type = kind == MemoryKind::kDevice   ? cudaMemoryTypeDevice
                     : kind == MemoryKind::kPinned ? cudaMemoryTypeHost
                                                   : cudaMemoryTypeUnregistered;
  attributes->device = kind == MemoryKind::kDevice ? device_of(address) : current_device();
  attributes->devicePointer = kind == MemoryKind::kHost ? nullptr : changeable;
  attributes->hostPointer = kind == MemoryKind::kDevice ? nullptr : changeable;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  const ApiLock lock;
  if (num_devices() == 0) {
    return note_error(cudaErrorNoDevice);
  }
  *total_bytes = settings().device_bytes;
  *free_bytes = *total_bytes - used_device_bytes(current_device());
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const ApiLock lock;
  return note_error(submit_copy(flat_copy(to, from, bytes), kind, stream));
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const ApiLock lock;
  check_no_open_group("cudaMemcpy");
  const cudaError_t status = submit_copy(flat_copy(to, from, bytes), kind, nullptr);
  return note_error(status == cudaSuccess ? wait_for_stream(nullptr) : status);
}

cudaError_t cudaMemcpyPeerAsync(
    void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to,
                              std::size_t to_pitch,
                              const void* from,
                              std::size_t from_pitch,
                              std::size_t width,
                              std::size_t height,
                              cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const ApiLock lock;
  if (width > to_pitch || width > from_pitch) {
    return note_error(cudaErrorInvalidValue);
  }
  Copy copy = flat_copy(to, from, width);
  copy.to_pitch = to_pitch;
  copy.from_pitch = from_pitch;
  copy.height = height;
  return note_error(submit_copy(copy, kind, stream));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  const ApiLock lock;
  return note_error(submit_fill({static_cast<std::byte*>(to), 0, value, bytes, 1}, stream));
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMemset2DAsync(void* to,
                              std::size_t pitch,
                              int value,
                              std::size_t width,
                              std::size_t height,
                              cudaStream_t stream) {
  const ApiLock lock;
  return note_error(
      submit_fill({static_cast<std::byte*>(to), pitch, value, width, height}, stream));
}

}  // extern "C"
