#include "device/cuda/cuda_queue.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/integers.h"
#include "device/cuda/cuda_check.h"

namespace lockstep {
namespace {

// Streams do not wait for the legacy default stream.
cudaStream_t make_stream(int priority) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
             "making a stream");
  return stream;
}

void* allocate_device(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw_error("cannot allocate {} bytes of GPU memory: {}", bytes, cudaGetErrorString(status));
  }
  return data;
}

}  // namespace

CudaEvent::CudaEvent() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
}

CudaEvent::~CudaEvent() {
  cudaEventDestroy(event_);
}

void CudaEvent::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream), "recording an event");
}

void CudaEvent::make_wait(cudaStream_t stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
}

bool CudaEvent::is_done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    return false;
  }
  check_cuda(status, "asking for an event");
  return true;
}

void CudaEvent::wait() const {
  check_cuda(cudaEventSynchronize(event_), "waiting for the device");
}

CudaQueue::CudaQueue(const CudaDevice& device) : Queue(DeviceKind::kCuda), device_(device) {
  check_cuda(cudaSetDevice(device.index), "choosing a device");
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for stream priorities");
  stream_ = make_stream(lowest);
  communication_stream_ = make_stream(highest);
  copy_stream_ = make_stream(highest);
  for (StagingBuffer& buffer : staging_) {
    check_cuda(cudaMallocHost(&buffer.data, kStagingBytes), "allocating pinned memory");
  }
}

// Failures have no one to go to here: the process ends.
CudaQueue::~CudaQueue() {
  cudaStreamSynchronize(stream_);
  cudaStreamSynchronize(communication_stream_);
  cudaStreamSynchronize(copy_stream_);
  states_.clear();
  workspace_ = {};
  for (const StagingBuffer& buffer : staging_) {
    cudaFreeHost(buffer.data);
  }
  if (arena_ != nullptr) {
    cudaFree(arena_);
  }
  cudaStreamDestroy(copy_stream_);
  cudaStreamDestroy(communication_stream_);
  cudaStreamDestroy(stream_);
}

void CudaQueue::reserve(std::size_t device_bytes) {
  LOCKSTEP_CHECK(arena_ == nullptr && allocated_bytes_ == 0);
  if (device_bytes == 0) {
    return;
  }
  arena_bytes_ = round_up(device_bytes, kAlignment);
  arena_ = static_cast<std::byte*>(allocate_device(arena_bytes_));
  check_cuda(cudaMemsetAsync(arena_, 0, arena_bytes_, stream_), "clearing memory");
}

Memory CudaQueue::allocate(std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  allocated_bytes_ += bytes;
  const std::size_t stored = round_up(bytes, kAlignment);
  if (stored <= arena_bytes_ - arena_used_) {
    std::byte* const data = arena_ + arena_used_;
    arena_used_ += stored;
    return {data, bytes, nullptr};
  }
  void* const data = allocate_device(bytes);
  check_cuda(cudaMemsetAsync(data, 0, bytes, stream_), "clearing memory");
  return {data, bytes, [](void* address, std::size_t) { cudaFree(address); }};
}

Memory CudaQueue::allocate_for_host(std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw_error("cannot allocate {} bytes of pinned memory: {}", bytes, cudaGetErrorString(status));
  }
  std::memset(data, 0, bytes);
  allocated_bytes_ += bytes;
  return {data, bytes, [](void* address, std::size_t) { cudaFreeHost(address); }};
}

void CudaQueue::copy_to_device(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, kStagingBytes);
    StagingBuffer& buffer = staging_[next_staging_];
    next_staging_ = (next_staging_ + 1) % kNumStaging;
    buffer.sent.wait();
    std::memcpy(buffer.data, source, part);
    check_cuda(cudaMemcpyAsync(target, buffer.data, part, cudaMemcpyHostToDevice, stream_),
               "copying to the device");
    buffer.sent.record(stream_);
    target += part;
    source += part;
    bytes -= part;
  }
}

void CudaQueue::copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
             "copying from the device");
  synchronize();
}

void CudaQueue::synchronize() {
  check_cuda(cudaStreamSynchronize(stream_), "waiting for the device");
}

std::byte* CudaQueue::workspace(std::size_t bytes) {
  if (bytes > workspace_.bytes()) {
    LOCKSTEP_CHECK(!sealed_);
    synchronize();  // kernels may still use the smaller one
    const std::size_t before = allocated_bytes_;
    workspace_ = {};
    workspace_ = allocate(round_up(bytes, kAlignment));
    allocated_bytes_ = before;
  }
  return workspace_.data();
}

}  // namespace lockstep
