// What the ranks of a host tell each other through shared memory. Every rank writes its own block
// and reads the others'; all starts as zeros.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "comm/communicator.h"

namespace lockstep {

/// A number in the upper half and another in the lower half of one word, published together.
constexpr std::uint64_t pack(std::uint32_t upper, std::uint32_t lower) {
  return (std::uint64_t{upper} << 32U) | lower;
}
constexpr std::uint32_t upper_half(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32U);
}
constexpr std::uint32_t lower_half(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}
/// Whether counter `a` has reached `b`, also after they wrap around.
constexpr bool reached(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) >= 0;
}

/// The last calls of a rank, so that ranks can see whether all make the same ones.
struct CallLog {
  static constexpr std::uint32_t kEntries = 1024;

  alignas(64) std::atomic<std::uint32_t> count{0};           ///< calls begun
  std::array<std::atomic<std::uint32_t>, kEntries> calls{};  ///< call number n at n % kEntries
};

/// Values of one all_gather: `header` is (sequence, tag) and is written last.
struct ValueSlot {
  alignas(64) std::atomic<std::uint64_t> header{0};
  std::array<double, Communicator::kMaxValues> values{};
};

struct RankControl {
  CallLog log;
  std::array<ValueSlot, 2> slots{};
};

/// How far a rank is with one operation.
struct OperationControl {
  alignas(64) std::atomic<std::uint64_t> ready{0};  ///< (call number, generation) contributed
  std::atomic<std::uint32_t> done{0};  ///< generation whose peers' buffers it needs no more
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace lockstep
