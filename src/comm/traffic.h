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
  /// Sum over the kinds.
  [[nodiscard]] double bytes() const;

 private:
  static constexpr std::size_t kNumKinds = 7;
  std::array<TrafficCount, kNumKinds> counts_;
};

}  // namespace lockstep
