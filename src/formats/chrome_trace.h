// Chrome's trace event format: what Perfetto (ui.perfetto.dev) and chrome://tracing open.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/trace.h"

namespace lockstep {

/// The trace of one rank as JSON: complete events ("ph": "X") of process `rank`, one thread a track,
/// with names for both. Times are microseconds after `origin_ns`, a value of now_ns(), with three
/// decimals, so nothing is lost; what belongs to a micro-batch has it and the chunk as arguments.
/// Files of several ranks can be opened together when their origins were taken at the same moment
/// (after a barrier: milliseconds apart when cores are busy); otherData.origin_ns lines up those of
/// one host exactly.
std::string chrome_trace_json(std::span<const TraceEvent> events, int rank, std::int64_t origin_ns);

/// Writes chrome_trace_json() to `path`, replacing it as a whole. The folder must exist. Throws
/// Error.
void write_chrome_trace(const std::string& path,
                        std::span<const TraceEvent> events,
                        int rank,
                        std::int64_t origin_ns);

}  // namespace lockstep
