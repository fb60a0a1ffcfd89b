#include "base/trace.h"

#include <algorithm>

namespace lockstep {
namespace {

struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The union of a track's events, as disjoint intervals in rising order.
std::vector<Interval> busy_intervals(std::span<const TraceEvent> events, TraceTrack track) {
  std::vector<Interval> all;
  for (const TraceEvent& event : events) {
    if (event.track == track && event.end_ns > event.begin_ns) {
      all.push_back({event.begin_ns, event.end_ns});
    }
  }
  std::sort(all.begin(), all.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
  std::vector<Interval> merged;
  for (const Interval next : all) {
    if (!merged.empty() && next.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, next.end);
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

std::int64_t total(const std::vector<Interval>& intervals) {
  std::int64_t sum = 0;
  for (const Interval interval : intervals) {
    sum += interval.end - interval.begin;
  }
  return sum;
}

}  // namespace

void TraceRecorder::reserve(std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  ring_ = std::vector<TraceEvent>(capacity);
  num_recorded_ = 0;
}

void TraceRecorder::record(const TraceEvent& event) {
  if (!on()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (!ring_.empty()) {
    ring_[num_recorded_ % ring_.size()] = event;
  }
  ++num_recorded_;
}

std::vector<TraceEvent> TraceRecorder::events() const {
  const std::lock_guard lock(mutex_);
  const std::size_t kept = std::min(num_recorded_, ring_.size());
  std::vector<TraceEvent> result;
  result.reserve(kept);
  for (std::size_t i = num_recorded_ - kept; i < num_recorded_; ++i) {
    result.push_back(ring_[i % ring_.size()]);
  }
  return result;
}

std::size_t TraceRecorder::num_dropped() const {
  const std::lock_guard lock(mutex_);
  return num_recorded_ - std::min(num_recorded_, ring_.size());
}

void TraceRecorder::clear() {
  const std::lock_guard lock(mutex_);
  num_recorded_ = 0;
}

TraceRecorder& process_trace() {
  static TraceRecorder recorder;
  return recorder;
}

double OverlapReport::hidden_fraction() const {
  return communication_ns == 0
             ? 1.0
             : static_cast<double>(hidden_ns) / static_cast<double>(communication_ns);
}

OverlapReport overlap_report(std::span<const TraceEvent> events) {
  const std::vector<Interval> compute = busy_intervals(events, TraceTrack::kCompute);
  const std::vector<Interval> communication = busy_intervals(events, TraceTrack::kCommunication);
  OverlapReport report{total(compute), total(communication), 0};
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < compute.size() && j < communication.size()) {
    const std::int64_t begin = std::max(compute[i].begin, communication[j].begin);
    const std::int64_t end = std::min(compute[i].end, communication[j].end);
    report.hidden_ns += std::max<std::int64_t>(end - begin, 0);
    if (compute[i].end < communication[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return report;
}

}  // namespace lockstep
