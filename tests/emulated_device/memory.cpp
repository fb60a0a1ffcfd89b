#include "emulated_device/memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include <sys/mman.h>

#include "emulated_device/crash_handler.h"
#include "emulated_device/fault.h"
#include "emulated_device/settings.h"

namespace lockstep::emulated {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;
constexpr std::size_t kRegionBytes = std::size_t{256} << 30U;  // of addresses, not of memory
// Between allocations, so that a step past the end of one does not reach the next.
constexpr std::size_t kGapBytes = 512;
constexpr std::size_t kDeviceAlignment = 256;
constexpr std::size_t kMaxDevices = 16;

struct Allocation {
  std::size_t bytes = 0;
  int number = 0;
  bool is_freed = false;
};

struct PinnedUse {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool writes = false;
  int lane = 0;
  std::uint32_t number = 0;
};

struct Memory {
  std::array<Region, kMaxDevices + 1> regions;  // the last one is the host's
  std::array<std::size_t, kMaxDevices + 1> live_bytes{};
  std::map<std::uintptr_t, Allocation> allocations;  // also those that were freed
  std::map<std::uintptr_t, std::size_t> registered;
  std::vector<PinnedUse> pinned_uses;
  int num_allocations = 0;
  int depth = 0;  // of DeviceAccess
};

Memory& memory() {
  static Memory& only = *new Memory;  // never destroyed: streams may outlive the program's end
  return only;
}

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void* reserve(std::size_t bytes, int protection) {
  void* const mapped =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    fault("cannot reserve {} bytes of addresses", bytes);
  }
  return mapped;
}

Region& open_region(int device) {
  const std::size_t index = device < 0 ? kMaxDevices : static_cast<std::size_t>(device);
  Region& region = memory().regions.at(index);
  if (region.bytes == 0) {
    const auto mapped =
        reinterpret_cast<std::uintptr_t>(reserve(kRegionBytes + kHugePageBytes, PROT_NONE));
    region.base = round_up(mapped, kHugePageBytes);
    constexpr int kBoth = PROT_READ | PROT_WRITE;
    region.states = static_cast<std::uint8_t*>(reserve(kRegionBytes, kBoth));
    const std::size_t cell_bytes = kRegionBytes / kCellBytes * sizeof(std::uint64_t);
    region.writes = static_cast<std::uint64_t*>(reserve(cell_bytes, kBoth));
    region.reads = static_cast<std::uint64_t*>(reserve(cell_bytes, kBoth));
    region.device = device;
    region.bytes = kRegionBytes;
    if (device >= 0) {  // changing the protection of few large pages is quick
      madvise(reinterpret_cast<void*>(region.base), kRegionBytes, MADV_HUGEPAGE);
    }
  }
  return region;
}

void protect(std::uintptr_t begin, std::uintptr_t end, int protection) {
  begin = begin / kPageBytes * kPageBytes;
  end = round_up(end, kPageBytes);
  if (end > begin && mprotect(reinterpret_cast<void*>(begin), end - begin, protection) != 0) {
    fault("cannot change the protection of {} bytes", end - begin);
  }
}

void protect_devices(int protection) {
  for (const Region& region : memory().regions) {
    if (region.device >= 0) {
      protect(region.base, region.base + round_up(region.used, kHugePageBytes), protection);
    }
  }
}

void protect_pinned_uses() {
  for (const bool writes : {false, true}) {  // the stricter ones last
    for (const PinnedUse& use : memory().pinned_uses) {
      if (use.writes == writes) {
        protect(use.begin, use.end, writes ? PROT_NONE : PROT_READ);
      }
    }
  }
}

void unprotect_pinned_uses() {
  for (const PinnedUse& use : memory().pinned_uses) {
    protect(use.begin, use.end, PROT_READ | PROT_WRITE);
  }
}

void* allocate(Region& region, std::size_t bytes, std::size_t alignment, std::uint8_t state) {
  Memory& m = memory();
  const std::size_t offset = round_up(region.used + kGapBytes, alignment);
  if (offset + bytes > region.bytes) {
    fault("all addresses of the emulated device are used up: nothing is used twice");
  }
  const std::uintptr_t address = region.base + offset;
  region.used = offset + bytes;
  std::memset(region.states + offset, state, bytes);
  m.allocations[address] = {bytes, ++m.num_allocations, false};
  m.live_bytes.at(region.device < 0 ? kMaxDevices : static_cast<std::size_t>(region.device)) +=
      bytes;
  return reinterpret_cast<void*>(address);
}

void release(void* address, bool is_device, const char* function) {
  Memory& m = memory();
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const auto found = m.allocations.find(start);
  Region* const region = find_region(start);
  if (found == m.allocations.end() || (region->device >= 0) != is_device) {
    fault("{} of {}, which is no such allocation: {}", function, address, describe_address(start));
  }
  Allocation& allocation = found->second;
  if (allocation.is_freed) {
    fault("{} of memory that was freed before: {}", function, describe_address(start));
  }
  allocation.is_freed = true;
  std::memset(region->states + (start - region->base), kFreedByte, allocation.bytes);
  m.live_bytes.at(is_device ? static_cast<std::size_t>(region->device) : kMaxDevices) -=
      allocation.bytes;
  // Whole pages go back; all that the operating system keeps of the rest is little.
  const std::uintptr_t first = round_up(start, kPageBytes);
  const std::uintptr_t end = (start + allocation.bytes) / kPageBytes * kPageBytes;
  if (end > first) {
    madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }
}

}  // namespace

Region* find_region(std::uintptr_t address) {
  for (Region& region : memory().regions) {
    if (region.contains(address)) {
      return &region;
    }
  }
  return nullptr;
}

void* allocate_device(int device, std::size_t bytes) {
  if (bytes > settings().device_bytes - used_device_bytes(device)) {
    return nullptr;
  }
  Region& region = open_region(device);
  void* const address = allocate(region, bytes, kDeviceAlignment, kUndefinedByte);
  if (memory().depth > 0) {
    protect_devices(PROT_READ | PROT_WRITE);
  }
  const DeviceAccess access;
  std::memset(address, 0xff, bytes);
  return address;
}

void* allocate_pinned(std::size_t bytes) {
  // Pages of its own: what is protected while a copy is under way is a page.
  Region& region = open_region(-1);
  void* const address = allocate(region, bytes, kPageBytes, kDefinedByte);
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  protect(start, start + bytes, PROT_READ | PROT_WRITE);
  return address;
}

void free_device(void* address) {
  release(address, true, "cudaFree");
}

void free_pinned(void* address) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  for (const PinnedUse& use : memory().pinned_uses) {
    if (use.begin >= start && use.begin - start < memory().allocations[start].bytes) {
      fault("cudaFreeHost of memory that a copy still has to {}: {}",
            use.writes ? "write" : "read",
            describe_address(use.begin));
    }
  }
  release(address, false, "cudaFreeHost");
  const Allocation& allocation = memory().allocations[start];
  protect(start, start + allocation.bytes, PROT_NONE);
}

std::size_t used_device_bytes(int device) {
  return memory().live_bytes.at(static_cast<std::size_t>(device));
}

void register_host(void* address, std::size_t bytes) {
  memory().registered[reinterpret_cast<std::uintptr_t>(address)] = bytes;
}

void unregister_host(void* address) {
  if (memory().registered.erase(reinterpret_cast<std::uintptr_t>(address)) == 0) {
    fault("cudaHostUnregister of {}, which is not registered", address);
  }
}

bool is_registered(std::uintptr_t address, std::size_t bytes) {
  const auto& registered = memory().registered;
  const auto after = registered.upper_bound(address);
  if (after == registered.begin()) {
    return false;
  }
  const auto& [begin, size] = *std::prev(after);
  return address - begin + bytes <= size;
}

MemoryKind kind_of(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const Region* const region = find_region(place);
  if (region != nullptr) {
    return region->device < 0 ? MemoryKind::kPinned : MemoryKind::kDevice;
  }
  return is_registered(place, 1) ? MemoryKind::kPinned : MemoryKind::kHost;
}

int device_of(const void* address) {
  const Region* const region = find_region(reinterpret_cast<std::uintptr_t>(address));
  return region == nullptr ? -1 : region->device;
}

std::string describe_address(std::uintptr_t address) {
  const Region* const region = find_region(address);
  if (region == nullptr) {
    return fmt::format("memory of the host at {:#x}", address);
  }
  const std::string owner =
      region->device < 0 ? "pinned memory" : fmt::format("device {}", region->device);
  const auto after = memory().allocations.upper_bound(address);
  if (after == memory().allocations.begin()) {
    return fmt::format("{}, before its first allocation", owner);
  }
  const auto& [start, allocation] = *std::prev(after);
  const std::string name = fmt::format("{}allocation {} of {} ({} bytes)",
                                       allocation.is_freed ? "freed " : "",
                                       allocation.number,
                                       owner,
                                       allocation.bytes);
  const std::size_t offset = address - start;
  if (!region->contains(start)) {
    return fmt::format("{}, before its first allocation", owner);
  }
  return offset < allocation.bytes
             ? fmt::format("byte {} of {}", offset, name)
             : fmt::format("{} bytes behind {}", offset - allocation.bytes, name);
}

DeviceAccess::DeviceAccess() {
  if (memory().depth++ == 0) {
    protect_devices(PROT_READ | PROT_WRITE);
    unprotect_pinned_uses();
  }
}

DeviceAccess::~DeviceAccess() {
  if (--memory().depth == 0) {
    protect_devices(PROT_NONE);
    protect_pinned_uses();
    install_crash_handler();
  }
}

void add_pinned_use(
    const void* address, std::size_t bytes, bool writes, int lane, std::uint32_t number) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const Region* const region = find_region(begin);
  if (region == nullptr || region->device >= 0 || bytes == 0) {
    return;
  }
  memory().pinned_uses.push_back({begin, begin + bytes, writes, lane, number});
  if (memory().depth == 0) {
    protect_pinned_uses();
    install_crash_handler();
  }
}

void release_pinned_uses(bool (*is_known_done)(int lane, std::uint32_t number)) {
  std::vector<PinnedUse>& uses = memory().pinned_uses;
  const auto is_done = [&](const PinnedUse& use) { return is_known_done(use.lane, use.number); };
  if (std::none_of(uses.begin(), uses.end(), is_done)) {
    return;
  }
  unprotect_pinned_uses();
  uses.erase(std::remove_if(uses.begin(), uses.end(), is_done), uses.end());
  if (memory().depth == 0) {
    protect_pinned_uses();
  }
}

PinnedState find_pinned_use(std::uintptr_t address) {
  PinnedState state = PinnedState::kFree;
  for (const PinnedUse& use : memory().pinned_uses) {
    if (address >= use.begin && address < use.end) {
      return use.writes ? PinnedState::kWritten : PinnedState::kRead;
    }
    if (address >= use.begin / kPageBytes * kPageBytes && address < round_up(use.end, kPageBytes)) {
      state = PinnedState::kNearby;
    }
  }
  return state;
}

void open_pinned_page(std::uintptr_t address) {
  protect(address, address + 1, PROT_READ | PROT_WRITE);
}

void close_pinned_pages() {
  protect_pinned_uses();
}

}  // namespace lockstep::emulated
