#include "device/cpu/cpu_queue.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;

}  // namespace

CpuQueue::CpuQueue(int num_threads) : Queue(DeviceKind::kCpu), threads_(num_threads) {}

Memory CpuQueue::allocate(std::size_t bytes) {
  Memory memory = allocate_host(bytes);
  allocated_bytes_ += bytes;
  return memory;
}

void CpuQueue::copy_to_device(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CpuQueue::copy_to_host(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

std::byte* CpuQueue::workspace(std::size_t bytes) {
  if (bytes > workspace_.bytes()) {
    LOCKSTEP_CHECK(!sealed_);
    workspace_ = allocate_host(round_up(bytes, kMemoryAlignment));
  }
  return workspace_.data();
}

Memory allocate_host(std::size_t bytes) {
  if (bytes == 0) {
    return {};
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw_error("cannot allocate {} bytes of host memory: {}", bytes, std::strerror(errno));
  }
  if (bytes >= kHugePage) {
    madvise(data, bytes, MADV_HUGEPAGE);  // advice only: failure costs speed, nothing else
  }
  return {data, bytes, [](void* address, std::size_t size) { munmap(address, size); }};
}

}  // namespace lockstep
