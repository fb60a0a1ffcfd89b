#include "device/dry/dry_queue.h"

#include <algorithm>
#include <bit>

#include "base/integers.h"

namespace lockstep {
namespace {

// Not null (null means "absent" to kernels) and far from anything mapped.
constexpr std::uintptr_t kFirstAddress = std::uintptr_t{1} << 46U;

}  // namespace

Memory DryQueue::allocate(std::size_t bytes) {
  const std::uintptr_t address = kFirstAddress + allocated_bytes_;
  allocated_bytes_ += round_up(bytes, kMemoryAlignment);
  return {std::bit_cast<void*>(address), bytes, nullptr};
}

std::byte* DryQueue::workspace(std::size_t bytes) {
  workspace_bytes_ = std::max(workspace_bytes_, round_up(bytes, kMemoryAlignment));
  return std::bit_cast<std::byte*>(kFirstAddress);
}

void DryQueue::record(const char* name, Cost cost) {
  total_.operations += cost.operations;
  total_.bytes += cost.bytes;
  if (listener_) {
    listener_(name, cost);
  }
}

}  // namespace lockstep
