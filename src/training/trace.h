// Which steps are traced (log.trace), and the file that each rank writes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/trace.h"

namespace lockstep {

/// The steps [begin, end) in the numbering of metrics.jsonl: the first step is 1.
struct TraceRange {
  long begin = 0;
  long end = 0;
  [[nodiscard]] constexpr bool contains(long step) const { return step >= begin && step < end; }
  [[nodiscard]] constexpr bool empty() const { return begin >= end; }
};

/// Reads the value of log.trace: "12:14" is steps 12 and 13, "" none. Anything else, a step below 1
/// or an empty range throws RequestError.
TraceRange parse_trace_range(const std::string& text);

/// Switches the recorder on for the steps of a range and writes the file after the last of them.
class StepTracer {
 public:
  /// Allocates room for `max_events` events (48 bytes each) when the range is not empty. The folder
  /// `directory` must exist when the range ends; it receives rank-<five digits of rank>.json.
  StepTracer(TraceRange range,
             std::string directory,
             int rank,
             std::size_t max_events = 1U << 18U,
             TraceRecorder& recorder = process_trace());
  /// Switches the recorder off, and writes nothing.
  ~StepTracer();
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  /// Time zero of the file; without it, the begin of the first traced step. Call it on all ranks
  /// right after a barrier, so that their files line up.
  void set_origin(std::int64_t origin_ns) { origin_ns_ = origin_ns; }

  /// Before each step. Cost outside the range: a comparison.
  void begin_step(long step);

  /// After each step; after the range's last one the file is written. Throws Error when that fails.
  void end_step(long step);

  /// Writes what was recorded and not yet written: for a run that ends inside the range. Logs how
  /// much communication was hidden behind compute, and how many events did not fit.
  void finish();

 private:
  TraceRange range_;
  std::string directory_;
  int rank_;
  TraceRecorder& recorder_;
  std::int64_t origin_ns_ = 0;
  bool pending_ = false;
};

}  // namespace lockstep
