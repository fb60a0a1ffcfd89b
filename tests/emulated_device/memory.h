// Memory of the emulated device and pinned memory of the host: address ranges with a shadow that knows of every byte
// whether it is allocated and written, and who touched it last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::emulated {

// States of a byte. Bit 1 says that it may be touched: checks compare several at a time.
inline constexpr std::uint8_t kNoByte = 0;
inline constexpr std::uint8_t kFreedByte = 1;
inline constexpr std::uint8_t kUndefinedByte = 2;
inline constexpr std::uint8_t kDefinedByte = 3;
inline constexpr std::uint8_t kArrivingByte =
    5;  ///< of shared memory: a copy into it has not been waited for

/// Bytes for which the last accesses are kept together: those of one bf16.
inline constexpr std::size_t kCellBytes = 2;

/// A reserved range of addresses. Nothing in it is used twice, so that what was freed stays known.
struct Region {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::size_t used = 0;
  std::uint8_t* states = nullptr;   ///< one a byte
  std::uint64_t* writes = nullptr;  ///< one a cell: who wrote last (access_checks.cpp)
  std::uint64_t* reads = nullptr;   ///< one a cell: who read last
  int device = -1;                  ///< -1: pinned memory of the host

  [[nodiscard]] bool contains(std::uintptr_t address) const { return address - base < bytes; }
};

/// The region of an address, or null.
Region* find_region(std::uintptr_t address);

/// Null if the device has not that much left. Undefined: filled with bytes that are NaNs as floats.
void* allocate_device(int device, std::size_t bytes);
/// Zero-filled and, since the host may write it unseen, defined.
void* allocate_pinned(std::size_t bytes);
/// Faults when `address` is not the start of an allocation of that kind. What still has to touch it will fault.
void free_device(void* address);
void free_pinned(void* address);
std::size_t used_device_bytes(int device);

/// Ordinary memory of the host that the device may use as well. No checks of single bytes.
void register_host(void* address, std::size_t bytes);
void unregister_host(void* address);
/// Whether [address, address + bytes) is registered.
bool is_registered(std::uintptr_t address, std::size_t bytes);

enum class MemoryKind : std::uint8_t { kHost, kPinned, kDevice };
MemoryKind kind_of(const void* address);
/// Which device's memory it is; -1 for the host's.
int device_of(const void* address);

/// "12 bytes behind allocation 3 of device 0 (64 bytes)" and the like.
std::string describe_address(std::uintptr_t address);

/// While one lives the memory of the devices can be touched; otherwise the host crashes on it, as with a GPU. Nests.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

/// Pinned memory that an operation will read or write: until `release_pinned_uses` the host may not write it (or touch
/// it at all). `lane` and `number` name the operation.
void add_pinned_use(
    const void* address, std::size_t bytes, bool writes, int lane, std::uint32_t number);
/// Forgets the uses for which `is_known_done(lane, number)`.
void release_pinned_uses(bool (*is_known_done)(int lane, std::uint32_t number));

enum class PinnedState : std::uint8_t { kFree, kNearby, kRead, kWritten };
/// What copies that are under way do to a byte of pinned memory; kNearby: to others on its page only.
PinnedState find_pinned_use(std::uintptr_t address);
/// Lets the host touch a page that is protected for others' sake, until the pages are closed again.
void open_pinned_page(std::uintptr_t address);
void close_pinned_pages();

}  // namespace lockstep::emulated
