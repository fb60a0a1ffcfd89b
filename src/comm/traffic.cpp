#include "comm/traffic.h"

namespace lockstep {

const char* name_of(TrafficKind kind) {
  switch (kind) {
    case TrafficKind::kAllReduce:
      return "all_reduce";
    case TrafficKind::kNativeAllReduce:
      return "native_all_reduce";
    case TrafficKind::kReduceScatter:
      return "reduce_scatter";
    case TrafficKind::kAllGather:
      return "all_gather";
    case TrafficKind::kValues:
      return "values";
    case TrafficKind::kBroadcast:
      return "broadcast";
    case TrafficKind::kSend:
      return "send";
  }
  return "";
}

const char* name_of_wait_for(TrafficKind kind) {
  switch (kind) {
    case TrafficKind::kAllReduce:
      return "wait for all_reduce";
    case TrafficKind::kNativeAllReduce:
      return "wait for native_all_reduce";
    case TrafficKind::kReduceScatter:
      return "wait for reduce_scatter";
    case TrafficKind::kAllGather:
      return "wait for all_gather";
    case TrafficKind::kValues:
      return "wait for values";
    case TrafficKind::kBroadcast:
      return "wait for broadcast";
    case TrafficKind::kSend:
      return "wait for send";
  }
  return "";
}

Traffic::Traffic() {
  for (std::size_t i = 0; i < kNumTrafficKinds; ++i) {
    counts_[i].kind = name_of(static_cast<TrafficKind>(i));
  }
}

void Traffic::add(std::span<const TrafficCount> counts) {
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    counts_[kind].calls += counts[kind].calls;
    counts_[kind].bytes += counts[kind].bytes;
  }
}

double Traffic::bytes() const {
  double bytes = 0;
  for (const TrafficCount& count : counts_) {
    bytes += count.bytes;
  }
  return bytes;
}

}  // namespace lockstep
