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

CudaQueue::CudaQueue(const CudaDevice& device, int num_threads)
    : Queue(DeviceKind::kCuda), device_(device), threads_(num_threads) {
  check_cuda(cudaSetDevice(device.index), "choosing a device");
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for stream priorities");
  stream_ = make_stream(lowest);
  current_ = stream_;
  for (StagingBuffer& buffer : staging_) {
    check_cuda(cudaMallocHost(&buffer.data, kStagingBytes), "allocating pinned memory");
  }
}

// Failures have no one to go to here: the process ends.
CudaQueue::~CudaQueue() {
  cudaDeviceSynchronize();
  states_.clear();
  workspace_ = {};
  for (const StagingBuffer& buffer : staging_) {
    cudaFreeHost(buffer.data);
  }
  if (arena_ != nullptr) {
    cudaFree(arena_);
  }
  for (cudaStream_t stream : streams_) {
    cudaStreamDestroy(stream);
  }
  cudaStreamDestroy(stream_);
}

cudaStream_t CudaQueue::add_stream() {
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for stream priorities");
  streams_.push_back(make_stream(highest));
  return streams_.back();
}

void CudaQueue::reserve(std::size_t device_bytes) {
  LOCKSTEP_CHECK(arena_ == nullptr);
  if (device_bytes == 0) {
    return;
  }
  arena_bytes_ = round_up(device_bytes, kAlignment);
  arena_ = static_cast<std::byte*>(allocate_device(arena_bytes_));
  check_cuda(cudaMemsetAsync(arena_, 0, arena_bytes_, stream_), "clearing memory");
}

Memory CudaQueue::allocate(std::size_t bytes) {
  allocated_bytes_ += bytes;
  return take(bytes, bytes);
}

Memory CudaQueue::take(std::size_t taken, std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  const std::size_t stored = round_up(taken, kAlignment);
  if (stored <= arena_bytes_ - arena_used_) {
    std::byte* const data = arena_ + arena_used_;
    arena_used_ += stored;
    return {data, bytes, nullptr};
  }
  void* const data = allocate_device(taken);
  check_cuda(cudaMemsetAsync(data, 0, taken, stream_), "clearing memory");
  return {data, bytes, [](void* address, std::size_t) { cudaFree(address); }};
}

Memory CudaQueue::allocate_for_host(std::size_t bytes) {
  allocated_bytes_ += bytes;
  return take_pinned(bytes);
}

Memory CudaQueue::take_pinned(std::size_t bytes) {
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
    check_cuda(cudaMemcpyAsync(target, buffer.data, part, cudaMemcpyHostToDevice, current_),
               "copying to the device");
    buffer.sent.record(current_);
    target += part;
    source += part;
    bytes -= part;
  }
}

void CudaQueue::copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, current_),
             "copying from the device");
  synchronize();
}

void CudaQueue::synchronize() {
  for (;;) {
    const cudaError_t status = cudaStreamQuery(current_);
    if (status == cudaSuccess) {
      return;
    }
    if (status != cudaErrorNotReady) {
      check_cuda(status, "waiting for the device");
    }
    if (waiter_) {
      waiter_();
    }
  }
}

std::byte* CudaQueue::workspace(std::size_t bytes) {
  if (bytes > workspace_.bytes()) {
    LOCKSTEP_CHECK(!sealed_);
    synchronize();  // kernels may still use the smaller one
    workspace_ = {};
    const std::size_t rounded = round_up(bytes, kMemoryAlignment);
    workspace_ = take(rounded, rounded);
  }
  return workspace_.data();
}

}  // namespace lockstep
