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

Traffic::Traffic() {
  for (std::size_t i = 0; i < kNumKinds; ++i) {
    counts_[i].kind = name_of(static_cast<TrafficKind>(i));
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
