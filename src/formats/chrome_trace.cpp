#include "formats/chrome_trace.h"

#include <array>
#include <iterator>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include "formats/append_file.h"

namespace lockstep {
namespace {

constexpr std::array kTrackNames{"compute", "communication", "waiting"};  // by TraceTrack

std::string quoted(const char* text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Nanoseconds as microseconds with three decimals: no rounding.
std::string microseconds(std::int64_t nanoseconds) {
  const std::int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  return fmt::format("{}{}.{:03d}", nanoseconds < 0 ? "-" : "", size / 1000, size % 1000);
}

std::string arguments(TracePlace place) {
  return place.micro_batch < 0
             ? ""
             : fmt::format(
                   R"(,"args":{{"chunk":{},"micro_batch":{}}})", place.chunk, place.micro_batch);
}

}  // namespace

std::string chrome_trace_json(std::span<const TraceEvent> events,
                              int rank,
                              std::int64_t origin_ns) {
  std::string json =
      fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"origin_ns":{}}},"traceEvents":[)"
                  "\n",
                  origin_ns);
  auto out = std::back_inserter(json);
  fmt::format_to(out,
                 R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"rank {}"}}}})",
                 rank,
                 rank);
  for (std::size_t track = 0; track < kTrackNames.size(); ++track) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                   rank,
                   track,
                   kTrackNames[track]);
  }
  for (const TraceEvent& event : events) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{}{}}})",
                   quoted(event.name),
                   quoted(event.category),
                   rank,
                   static_cast<int>(event.track),
                   microseconds(event.begin_ns - origin_ns),
                   microseconds(event.end_ns - event.begin_ns),
                   arguments(event.place));
  }
  json += "\n]}\n";
  return json;
}

void write_chrome_trace(const std::string& path,
                        std::span<const TraceEvent> events,
                        int rank,
                        std::int64_t origin_ns) {
  replace_file(path, chrome_trace_json(events, rank, origin_ns));
}

}  // namespace lockstep
