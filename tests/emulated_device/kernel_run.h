// Runs kernels: every thread of a block on a fiber of its own, blocks in random order one after another. Each warp runs
// as far ahead of the others as barriers allow in most blocks, because that is what shows that one is missing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emulated_device/device_functions.h"
#include "emulated_device/kernel_launch.h"

namespace lockstep::emulated {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr std::size_t kMaxBlockThreads = 1024;
inline constexpr std::size_t kMaxSharedBytes = std::size_t{227} << 10U;
inline constexpr std::size_t kStackBytes = std::size_t{128} << 10U;

struct AsyncCopy {
  std::uintptr_t shared = 0;
  std::uintptr_t global = 0;
  int valid_bytes = 0;
  bool is_read = false;  ///< bytes hold what was there when it was started
  std::array<unsigned char, 16> bytes{};
};

/// Copies that a thread has started and not waited for, in order, and where its groups end.
struct AsyncCopies {
  std::vector<AsyncCopy> copies;
  std::vector<std::size_t> group_ends;
};

enum class Waiting : std::uint8_t { kNo, kBarrier, kWarp, kEnded };

struct KernelThread {
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;
  uint3 index{};
  unsigned number = 0;
  unsigned lane = 0;
  unsigned warp = 0;
  Waiting waiting = Waiting::kNo;
  int line = 0;                    ///< of what it waits in
  unsigned mask = 0;               ///< of the lanes it waits for
  std::uint32_t last_meeting = 0;  ///< number of the last meeting of its warp that it was in
  alignas(16) std::array<std::byte, 64> given{};
  alignas(16) std::array<std::byte, 32> received{};
  AsyncCopies async;
};

/// Lanes that have arrived at a call with one mask.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;
  WarpCall call = WarpCall::kSync;
  int line = 0;
};

struct Warp {
  unsigned present = 0;  ///< lanes that the block has
  unsigned ready = 0;    ///< lanes that can run
  std::vector<Meeting> meetings;
  std::uint32_t num_meetings = 0;  ///< since the last barrier of the block
  std::uint32_t last_full = 0;     ///< the last meeting of all lanes
  /// Of meetings of some lanes: the last one of each pair, 32 x 32. Empty before the first.
  std::vector<std::uint32_t> last_common;

  /// Whether lane `other` was met after its meeting number `since` by `thread`.
  [[nodiscard]] bool met_since(const KernelThread& thread,
                               unsigned other,
                               std::uint32_t since) const {
    return last_full > since ||
           (!last_common.empty() && last_common[thread.lane * kWarpLanes + other] > since);
  }
};

/// What runs now, for the checks of single accesses.
struct Running {
  std::uintptr_t stack = 0;  ///< of the current thread
  std::uintptr_t shared = 0;
  std::size_t shared_bytes = 0;
  std::uintptr_t parameters = 0;
  std::size_t parameter_bytes = 0;
  const KernelThread* thread = nullptr;
  const Warp* warp = nullptr;
  std::uint32_t block = 0;  ///< linear number
  std::uint32_t epoch = 0;  ///< counts barriers (24 bits), over all blocks and kernels
  bool checks = true;       ///< of single accesses
};

/// Null unless this host thread runs a kernel's thread.
extern thread_local Running* running [[gnu::tls_model("initial-exec")]];

/// While the runtime works for a thread its own accesses are not checked; templates that kernels use, too, may have
/// been compiled with checks.
class Unchecked {
 public:
  Unchecked() : before_(running) { running = nullptr; }
  ~Unchecked() { running = before_; }
  Unchecked(const Unchecked&) = delete;
  Unchecked& operator=(const Unchecked&) = delete;

 private:
  Running* before_;
};

/// Runs all blocks to their end, or faults.
void run_kernel(const KernelLaunch& launch);

/// "kernel f(float*), block (0,0,0) of (4,1,1), thread (3,0,0) of (64,1,1)"; empty when none runs.
std::string describe_running_kernel();
std::string describe_thread(unsigned number);
/// The thread that runs.
KernelThread& running_thread();
/// Whether an address is in the guard page below a thread's stack.
bool is_stack_guard(std::uintptr_t address);

}  // namespace lockstep::emulated
