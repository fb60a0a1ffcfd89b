#include "emulated_device/access_checks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <link.h>

#include "emulated_device/fault.h"
#include "emulated_device/kernel_run.h"
#include "emulated_device/memory.h"
#include "emulated_device/operations.h"
#include "emulated_device/settings.h"

// Variables marked __constant__ (kernel_prelude.h), if there are any.
extern "C" {
extern const char kConstantsBegin[] __asm__("__start_lockstep_emulated_constant")
    __attribute__((weak));
extern const char kConstantsEnd[] __asm__("__stop_lockstep_emulated_constant")
    __attribute__((weak));
}

namespace lockstep::emulated {
namespace {

// Who touched a cell of 2 bytes of global memory last: operation (32 bits), block (24), several blocks (1), atomically
// (1), which bytes (2).
constexpr std::uint64_t kAtomicMark = 1U << 4U;
constexpr std::uint64_t kSeveralMark = 1U << 5U;
constexpr std::uint64_t kByteMask = 3;
constexpr std::uint64_t kBlockMask = std::uint64_t{0xffffff} << 8U;
constexpr std::uint64_t kActorMask = ~std::uint64_t{255};  // operation and block

// Of a cell that operations without an order among them have read: the operation's number is that of a list.
constexpr std::uint64_t kListMark = 1U << 6U;

// Who touches memory now.
struct Actor {
  std::uint64_t cell = 0;  // operation and block, as in a cell
  Access access = Access::kRead;
  const void* code = nullptr;
};

std::uint32_t block_of(std::uint64_t cell) {
  return static_cast<std::uint32_t>((cell & kBlockMask) >> 8U);
}

// Lists of operations that read at the same time; the last one is the one whose block the cell tells.
class ReaderLists {
 public:
  [[nodiscard]] const std::vector<std::uint32_t>& at(std::uint32_t list) const {
    return lists_[list];
  }

  std::uint32_t find(const std::vector<std::uint32_t>& operations) {
    const auto [found, is_new] =
        numbers_.try_emplace(operations, static_cast<std::uint32_t>(lists_.size()));
    if (is_new) {
      lists_.push_back(operations);
    }
    return found->second;
  }

 private:
  std::vector<std::vector<std::uint32_t>> lists_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> numbers_;
};

ReaderLists& reader_lists() {
  static ReaderLists& only = *new ReaderLists;
  return only;
}

std::uint32_t operation_of(std::uint64_t cell) {
  const auto number = static_cast<std::uint32_t>(cell >> 32U);
  return (cell & kListMark) == 0 ? number : reader_lists().at(number).back();
}

const char* verb(Access access) {
  return access == Access::kRead ? "reads" : access == Access::kWrite ? "writes" : "changes";
}

[[noreturn]] void report_race(const Actor& actor,
                              std::uintptr_t address,
                              std::uint64_t other,
                              bool other_wrote) {
  const char* const did = other_wrote ? "wrote" : "read";
  if (operation_of(other) == operation_of(actor.cell)) {
    fault_at(
        actor.code,
        "race between blocks: block {} {} {}, which {} {} in the same launch",
        block_of(actor.cell),
        verb(actor.access),
        describe_address(address),
        (other & kSeveralMark) != 0 ? "several blocks" : fmt::format("block {}", block_of(other)),
        did);
  }
  fault_at(actor.code,
           "race between streams: {} {}, which {} {} without an order between them (an event, or a "
           "wait of the host)",
           verb(actor.access),
           describe_address(address),
           describe_operation(operation_of(other)),
           did);
}

// `other` is the operation that a cell names, or one of those that it lists.
void check_operations_order(const Actor& actor,
                            std::uint64_t cell,
                            std::uint32_t other,
                            bool other_wrote,
                            std::uintptr_t address) {
  if (other != operation_of(actor.cell) && !is_before_current(other)) {
    report_race(actor,
                address,
                std::uint64_t{other} << 32U | (cell & ~kListMark & 0xffffffffU),
                other_wrote);
  }
}

void check_cell(const Actor& actor,
                std::uint64_t other,
                std::uint64_t bytes,
                bool other_wrote,
                std::uintptr_t address) {
  if (other == 0 || (other & bytes) == 0) {
    return;
  }
  if ((other & kListMark) != 0) {
    const Unchecked unchecked;
    for (const std::uint32_t operation :
         reader_lists().at(static_cast<std::uint32_t>(other >> 32U))) {
      check_operations_order(actor, other, operation, other_wrote, address);
    }
  }
  if (operation_of(other) != operation_of(actor.cell)) {
    check_operations_order(actor, other, operation_of(other), other_wrote, address);
    return;
  }
  const bool both_atomic =
      other_wrote && actor.access == Access::kAtomic && (other & kAtomicMark) != 0;
  const bool same_block = block_of(other) == block_of(actor.cell) && (other & kSeveralMark) == 0;
  if (!same_block && !both_atomic) {
    report_race(actor, address, other, other_wrote);
  }
}

// The cell after a read by another operation than the last one: all that this one does not come after are kept.
std::uint64_t join_readers(const Actor& actor, std::uint64_t cell, std::uint64_t bytes) {
  if ((cell & kListMark) == 0 && is_before_current(operation_of(cell))) {
    return actor.cell | bytes;
  }
  const Unchecked unchecked;
  std::vector<std::uint32_t> readers =
      (cell & kListMark) == 0 ? std::vector<std::uint32_t>{operation_of(cell)}
                              : reader_lists().at(static_cast<std::uint32_t>(cell >> 32U));
  const std::uint32_t self = operation_of(actor.cell);
  readers.erase(std::remove_if(
                    readers.begin(),
                    readers.end(),
                    [&](std::uint32_t other) { return other == self || is_before_current(other); }),
                readers.end());
  if (readers.empty()) {
    return actor.cell | bytes;
  }
  readers.push_back(self);
  const std::uint64_t list = reader_lists().find(readers);
  return list << 32U | (actor.cell & kBlockMask) | kListMark | (cell & kByteMask) | bytes;
}

void record_read(const Actor& actor, std::uint64_t& cell, std::uint64_t bytes) {
  // Of blocks that read different bytes of a cell the last one is known: no race is seen where there is none.
  if ((cell & bytes) == 0) {
    cell = actor.cell | bytes;
  } else if (operation_of(cell) != operation_of(actor.cell)) {
    cell = join_readers(actor, cell, bytes);
  } else {
    cell |= bytes | (block_of(cell) == block_of(actor.cell) ? 0 : kSeveralMark);
  }
}

void record_write(const Actor& actor, std::uint64_t& cell, std::uint64_t bytes) {
  const std::uint64_t atomic = actor.access == Access::kAtomic ? kAtomicMark : 0;
  if (((cell ^ actor.cell) & kActorMask) == 0) {
    cell = (cell | bytes) & ~(atomic == 0 ? kAtomicMark : 0);
  } else {
    cell = actor.cell | bytes | atomic;
  }
}

void check_region_cells(Region& region,
                        std::uintptr_t address,
                        std::size_t bytes,
                        const Actor& actor) {
  const std::size_t begin = address - region.base;
  const std::size_t end = begin + bytes;
  for (std::size_t cell = begin / kCellBytes; cell * kCellBytes < end; ++cell) {
    const std::size_t first = std::max(begin, cell * kCellBytes) - cell * kCellBytes;
    const std::size_t last = std::min(end, (cell + 1) * kCellBytes) - cell * kCellBytes;
    const std::uint64_t mask = (kByteMask >> (kCellBytes - (last - first))) << first;
    const std::uintptr_t place = region.base + cell * kCellBytes + first;
    std::uint64_t& written = region.writes[cell];
    std::uint64_t& read = region.reads[cell];
    if (written != (actor.cell | kByteMask)) {
      check_cell(actor, written, mask, true, place);
    }
    if (actor.access == Access::kRead) {
      record_read(actor, read, mask);
    } else {
      check_cell(actor, read, mask, false, place);
      record_write(actor, written, mask);
    }
  }
}

std::uint64_t load_states(const std::uint8_t* states, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, states, bytes);
  return word;
}

// Whether all of the bytes have the bits of `state` (1 to 8 bytes at a time).
bool all_have(const std::uint8_t* states, std::size_t bytes, std::uint8_t state) {
  while (bytes > 0) {
    const std::size_t part = std::min<std::size_t>(bytes, 8);
    const std::uint64_t wanted = 0x0101010101010101U * state >> 8 * (8 - part);
    if ((load_states(states, part) & wanted) != wanted) {
      return false;
    }
    states += part;
    bytes -= part;
  }
  return true;
}

std::size_t first_without(const std::uint8_t* states, std::size_t bytes, std::uint8_t state) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if ((states[i] & state) != state) {
      return i;
    }
  }
  return bytes;
}

[[noreturn]] void report_state(const Actor& actor,
                               std::uintptr_t address,
                               std::size_t bytes,
                               std::uint8_t state) {
  const char* const access = actor.access == Access::kRead ? "read" : "write";
  const char* const problem = state == kNoByte      ? "outside any allocation"
                              : state == kFreedByte ? "of memory that was freed"
                                                    : "of bytes that nothing has written";
  fault_at(actor.code,
           "{} of {} bytes at {:#x} {}: {}",
           access,
           bytes,
           address,
           problem,
           describe_address(address));
}

// With `needs_values` reads need bytes that were written.
void check_region_states(Region& region,
                         std::uintptr_t address,
                         std::size_t bytes,
                         const Actor& actor,
                         bool needs_values) {
  std::uint8_t* const states = region.states + (address - region.base);
  const bool needs_defined =
      actor.access == Access::kAtomic || (actor.access == Access::kRead && needs_values);
  const std::uint8_t needed = needs_defined ? kDefinedByte : kUndefinedByte;
  if (address + bytes > region.base + region.bytes || !all_have(states, bytes, needed)) {
    const std::size_t bad = first_without(states, bytes, needed);
    report_state(actor, address + bad, bytes, states[bad]);
  }
  if (actor.access != Access::kRead) {
    std::memset(states, kDefinedByte, bytes);
  }
}

// ---- Shared memory ----------------------------------------------------------------------------------------------

// Who touched 2 bytes of shared memory last: epoch (24 bits), meeting (24), thread (10), atomically (1), several
// threads of one warp or of several (2), which bytes (2).
constexpr std::size_t kSharedCellBytes = 2;
constexpr std::uint64_t kSharedByteMask = 3;
constexpr std::uint64_t kOneWarp = 1U << 2U;
constexpr std::uint64_t kSeveralWarps = 1U << 3U;
constexpr std::uint64_t kSharedAtomic = 1U << 4U;

struct SharedShadow {
  std::array<std::uint8_t, kMaxSharedBytes + 16> states{};
  std::array<std::uint64_t, kMaxSharedBytes / kSharedCellBytes + 1> writes{};
  std::array<std::uint64_t, kMaxSharedBytes / kSharedCellBytes + 1> reads{};
};

SharedShadow& shared_shadow() {
  static const auto only = std::make_unique<SharedShadow>();
  return *only;
}

std::uint32_t epoch_of(std::uint64_t cell) {
  return static_cast<std::uint32_t>(cell >> 40U);
}

std::uint32_t meeting_of(std::uint64_t cell) {
  return static_cast<std::uint32_t>(cell >> 16U) & 0xffffffU;
}

unsigned thread_of(std::uint64_t cell) {
  return static_cast<unsigned>(cell >> 5U) & 1023U;
}

constexpr std::uint64_t kSharedActorMask = ~std::uint64_t{31};

std::uint64_t shared_actor() {
  const KernelThread& thread = *running->thread;
  return std::uint64_t{running->epoch & 0xffffffU} << 40U |
         std::uint64_t{thread.last_meeting & 0xffffffU} << 16U | std::uint64_t{thread.number} << 5U;
}

bool is_ordered(std::uint64_t other) {
  const KernelThread& thread = *running->thread;
  if (epoch_of(other) != (running->epoch & 0xffffffU)) {
    return true;
  }
  if ((other & kSeveralWarps) != 0) {
    return false;
  }
  if ((other & kOneWarp) == 0 && thread_of(other) == thread.number) {
    return true;
  }
  if (thread_of(other) / kWarpLanes != thread.warp) {
    return false;
  }
  return running->warp->met_since(thread, thread_of(other) % kWarpLanes, meeting_of(other));
}

[[noreturn]] void report_shared_race(const Actor& actor,
                                     std::size_t offset,
                                     std::uint64_t other,
                                     bool other_wrote) {
  const bool several = (other & (kOneWarp | kSeveralWarps)) != 0;
  fault_at(actor.code,
           "race in shared memory: {} byte {}, which {} {} without a barrier in between{}",
           verb(actor.access),
           offset,
           several ? "several threads" : describe_thread(thread_of(other)),
           other_wrote ? "wrote" : "read",
           thread_of(other) / kWarpLanes == running->thread->warp
               ? " (in the same warp: __syncwarp)"
               : "");
}

void record_shared_read(std::uint64_t actor, std::uint64_t& cell, std::uint64_t bytes) {
  if (((cell ^ actor) & kSharedActorMask) == 0) {
    cell |= bytes;
    return;
  }
  if (is_ordered(cell) || (cell & bytes) == 0) {
    cell = actor | bytes;
    return;
  }
  const bool same_warp =
      (cell & kSeveralWarps) == 0 && thread_of(cell) / kWarpLanes == running->thread->warp;
  cell = (actor & kSharedActorMask) | (cell & kSharedByteMask) | bytes |
         (same_warp ? kOneWarp : kSeveralWarps);
}

void check_shared_cells(std::size_t begin, std::size_t bytes, const Actor& actor) {
  SharedShadow& shadow = shared_shadow();
  const std::uint64_t self = shared_actor();
  const std::size_t end = begin + bytes;
  for (std::size_t cell = begin / kSharedCellBytes; cell * kSharedCellBytes < end; ++cell) {
    const std::size_t first = std::max(begin, cell * kSharedCellBytes) - cell * kSharedCellBytes;
    const std::size_t last = std::min(end, (cell + 1) * kSharedCellBytes) - cell * kSharedCellBytes;
    const std::uint64_t mask = (kSharedByteMask >> (kSharedCellBytes - (last - first))) << first;
    std::uint64_t& written = shadow.writes[cell];
    std::uint64_t& read = shadow.reads[cell];
    const bool both_atomic = actor.access == Access::kAtomic && (written & kSharedAtomic) != 0;
    if ((written & mask) != 0 && !both_atomic && !is_ordered(written)) {
      report_shared_race(actor, cell * kSharedCellBytes + first, written, true);
    }
    if (actor.access == Access::kRead) {
      record_shared_read(self, read, mask);
      continue;
    }
    if ((read & mask) != 0 && !is_ordered(read)) {
      report_shared_race(actor, cell * kSharedCellBytes + first, read, false);
    }
    const std::uint64_t kept =
        ((written ^ self) & kSharedActorMask) == 0 ? written & kSharedByteMask : 0;
    written = self | kept | mask | (actor.access == Access::kAtomic ? kSharedAtomic : 0);
  }
}

void check_shared_access(std::uintptr_t address, std::size_t bytes, const Actor& actor) {
  const std::size_t offset = address - running->shared;
  if (offset + bytes > running->shared_bytes) {
    fault_at(actor.code,
             "{} {} bytes at byte {} of shared memory, of which the block has {}",
             verb(actor.access),
             bytes,
             offset,
             running->shared_bytes);
  }
  std::uint8_t* const states = &shared_shadow().states[offset];
  const std::uint8_t needed = actor.access == Access::kWrite ? kUndefinedByte : kDefinedByte;
  if (!all_have(states, bytes, needed)) {
    const std::size_t bad = first_without(states, bytes, needed);
    if (states[bad] == kArrivingByte) {
      fault_at(actor.code,
               "{} byte {} of shared memory, into which an asynchronous copy was started that "
               "nobody has waited for",
               verb(actor.access),
               offset + bad);
    }
    fault_at(actor.code,
             "reads byte {} of shared memory, which nothing has written (or not yet: is a barrier "
             "missing?)",
             offset + bad);
  }
  check_shared_cells(offset, bytes, actor);
  if (actor.access != Access::kRead) {
    std::memset(states, kDefinedByte, bytes);
  }
}

// ---- Everything else --------------------------------------------------------------------------------------------

using AddressRange = std::pair<std::uintptr_t, std::uintptr_t>;

int add_constant_segments(dl_phdr_info* info, std::size_t, void* out) {
  auto& ranges = *static_cast<std::vector<AddressRange>*>(out);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const bool constant = (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0) ||
                          segment.p_type == PT_GNU_RELRO;
    if (constant) {
      const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      ranges.emplace_back(begin, begin + segment.p_memsz);
    }
  }
  return 1;  // the program itself comes first, and is enough
}

bool is_program_constant(std::uintptr_t address) {
  static const std::vector<AddressRange> ranges = [] {
    std::vector<AddressRange> found;
    dl_iterate_phdr(&add_constant_segments, &found);
    return found;
  }();
  const auto contains = [&](const AddressRange& range) {
    return address >= range.first && address < range.second;
  };
  const auto first = reinterpret_cast<std::uintptr_t>(&kConstantsBegin[0]);
  const auto end = reinterpret_cast<std::uintptr_t>(&kConstantsEnd[0]);
  return (address >= first && address < end) || std::any_of(ranges.begin(), ranges.end(), contains);
}

void check_other_access(std::uintptr_t address, std::size_t bytes, const Actor& actor) {
  if (is_registered(address, bytes)) {
    return;
  }
  const Unchecked unchecked;
  if (actor.access == Access::kRead && is_program_constant(address)) {
    return;
  }
  const char* const where =
      find_region(address) != nullptr ? "" : ", memory of the host or another thread's stack";
  fault_at(actor.code, "{} {} bytes at {:#x}{}", verb(actor.access), bytes, address, where);
}

// The region of most accesses: that of the last one.
thread_local Region* last_region = nullptr;

Region* find_region_fast(std::uintptr_t address) {
  if (last_region == nullptr || !last_region->contains(address)) {
    Region* const found = find_region(address);
    if (found == nullptr) {
      return nullptr;
    }
    last_region = found;
  }
  return last_region;
}

}  // namespace

void check_thread_access(std::uintptr_t address,
                         std::size_t bytes,
                         Access access,
                         const void* code) {
  if (!running->checks || address - running->stack < kStackBytes) {
    return;
  }
  Actor actor{0, access, code};
  if (address - running->shared < kMaxSharedBytes) {
    check_shared_access(address, bytes, actor);
    return;
  }
  Region* const region = find_region_fast(address);
  if (region != nullptr) {
    actor.cell =
        std::uint64_t{current_operation()} << 32U | std::uint64_t{running->block & 0xffffffU} << 8U;
    check_region_states(*region, address, bytes, actor, true);
    check_region_cells(*region, address, bytes, actor);
    return;
  }
  if (access == Access::kRead && address - running->parameters < running->parameter_bytes) {
    return;
  }
  check_other_access(address, bytes, actor);
}

void check_operation_access(const void* address,
                            std::size_t bytes,
                            Access access,
                            bool needs_values) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  Region* const region = find_region(begin);
  if (bytes == 0 || !settings().checks) {
    return;
  }
  if (region == nullptr) {
    if (!is_registered(begin, bytes)) {
      fault("{} bytes at {:#x}, memory of the host that the device cannot reach", bytes, begin);
    }
    return;
  }
  const Actor actor{std::uint64_t{current_operation()} << 32U, access, nullptr};
  check_region_states(*region, begin, bytes, actor, needs_values);
  check_region_cells(*region, begin, bytes, actor);
}

void copy_states(const void* to, const void* from, std::size_t bytes) {
  const auto target = reinterpret_cast<std::uintptr_t>(to);
  const auto source = reinterpret_cast<std::uintptr_t>(from);
  const Region* const target_region = find_region(target);
  const Region* const source_region = find_region(source);
  if (target_region != nullptr && source_region != nullptr) {
    std::memmove(target_region->states + (target - target_region->base),
                 source_region->states + (source - source_region->base),
                 bytes);
  }
}

void reset_shared_states(std::size_t bytes) {
  std::memset(shared_shadow().states.data(), kUndefinedByte, bytes);
}

void forget_shared_accesses() {
  shared_shadow().writes.fill(0);
  shared_shadow().reads.fill(0);
}

void mark_arriving(std::uintptr_t shared, std::size_t bytes) {
  std::memset(&shared_shadow().states[shared - running->shared], kArrivingByte, bytes);
}

void mark_arrived(std::uintptr_t shared, std::size_t bytes) {
  const std::size_t offset = shared - running->shared;
  std::memset(&shared_shadow().states[offset], kDefinedByte, bytes);
  if (running->checks) {
    check_shared_cells(offset, bytes, {0, Access::kWrite, nullptr});
  }
}

}  // namespace lockstep::emulated
