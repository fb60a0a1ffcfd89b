// What a rank of a group has sent so far, by kind of call.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace lockstep {

/// Calls of one kind, and the bytes that this rank sent in them (Communicator::bytes_sent).
struct TrafficCount {
  const char* kind = "";
  long calls = 0;
  double bytes = 0;
};

/// The kinds, in the order of Traffic::counts.
enum class TrafficKind {
  kAllReduce,
  kNativeAllReduce,
  kReduceScatter,
  kAllGather,
  kValues,
  kBroadcast,
  kSend
};

/// "all_reduce", "native_all_reduce", "reduce_scatter", "all_gather", "values", "broadcast" or
/// "send".
const char* name_of(TrafficKind kind);
/// The same as a trace calls a wait for it: "wait for all_reduce". Literals, both.
const char* name_of_wait_for(TrafficKind kind);

inline constexpr std::size_t kNumTrafficKinds = 7;

class Traffic {
 public:
  Traffic();

  /// No allocation.
  void count(TrafficKind kind, double bytes) {
    TrafficCount& entry = counts_[static_cast<std::size_t>(kind)];
    ++entry.calls;
    entry.bytes += bytes;
  }
  /// One entry a kind, those without calls included; valid while this lives.
  [[nodiscard]] std::span<const TrafficCount> counts() const { return counts_; }
  /// Adds counts of the same kinds in the same order.
  void add(std::span<const TrafficCount> counts);
  /// Sum over the kinds.
  [[nodiscard]] double bytes() const;

 private:
  std::array<TrafficCount, kNumTrafficKinds> counts_;
};

}  // namespace lockstep
