#include "training/trace.h"

#include <charconv>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/chrome_trace.h"

namespace lockstep {

TraceRange parse_trace_range(const std::string& text) {
  if (text.empty()) {
    return {};
  }
  TraceRange range;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.begin);
  bool valid = first.ec == std::errc{} && first.ptr != end && *first.ptr == ':';
  if (valid) {
    const auto last = std::from_chars(first.ptr + 1, end, range.end);
    valid = last.ec == std::errc{} && last.ptr == end;
  }
  if (!valid || range.begin < 1 || range.empty()) {
    throw_request_error(
        "log.trace: \"{}\" is no range of steps; expected FIRST:END with 1 <= FIRST < END, as in "
        "\"12:14\" for steps 12 and 13",
        text);
  }
  return range;
}

StepTracer::StepTracer(TraceRange range,
                       std::string directory,
                       int rank,
                       std::size_t max_events,
                       TraceRecorder& recorder)
    : range_(range), directory_(std::move(directory)), rank_(rank), recorder_(recorder) {
  if (!range_.empty()) {
    recorder_.reserve(max_events);
  }
}

StepTracer::~StepTracer() {
  if (!range_.empty()) {
    recorder_.switch_on(false);
  }
}

void StepTracer::begin_step(long step) {
  if (!range_.contains(step)) {
    return;
  }
  if (origin_ns_ == 0) {
    origin_ns_ = now_ns();
  }
  pending_ = true;
  recorder_.switch_on(true);
}

void StepTracer::end_step(long step) {
  if (!range_.contains(step)) {
    return;
  }
  recorder_.switch_on(false);
  if (step + 1 == range_.end) {
    finish();
  }
}

void StepTracer::finish() {
  if (!pending_) {
    return;
  }
  pending_ = false;
  recorder_.switch_on(false);
  const std::vector<TraceEvent> events = recorder_.events();
  const std::string path = fmt::format("{}/rank-{:05d}.json", directory_, rank_);
  write_chrome_trace(path, events, rank_, origin_ns_);
  log::info("trace: {} events in {}", events.size(), path);
  const OverlapReport report = overlap_report(events);
  if (report.communication_ns > 0) {
    log::info("trace: {:.1f} ms of communication, {:.0f} % of it behind compute",
              static_cast<double>(report.communication_ns) * 1e-6,
              100.0 * report.hidden_fraction());
  }
  if (recorder_.num_dropped() > 0) {
    log::warn("trace: the first {} events did not fit; trace fewer steps", recorder_.num_dropped());
  }
}

}  // namespace lockstep
