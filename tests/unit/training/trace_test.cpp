#include "training/trace.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

void run_step(StepTracer& tracer, TraceRecorder& recorder, long step) {
  tracer.begin_step(step);
  { const TraceSpan span("step", "train", TraceTrack::kCompute, recorder); }
  tracer.end_step(step);
}

std::size_t num_spans(const std::string& path) {
  const auto trace = nlohmann::json::parse(test::read_file(path));
  std::size_t count = 0;
  for (const auto& event : trace["traceEvents"]) {
    count += event["ph"] == "X" ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("a range of steps is half open") {
  const TraceRange range = parse_trace_range("12:14");

  CHECK_FALSE(range.contains(11));
  CHECK(range.contains(12));
  CHECK(range.contains(13));
  CHECK_FALSE(range.contains(14));
  CHECK(parse_trace_range("").empty());
}

TEST_CASE("a malformed range is refused and quoted") {
  for (const std::string bad : {"12",
                                ":",
                                "12:",
                                ":14",
                                "14:12",
                                "3:3",
                                "0:2",
                                "-1:2",
                                "a:b",
                                "1:2x",
                                " 1:2",
                                "1:+2",
                                "1:99999999999999999999"}) {
    CHECK_THROWS_AS(parse_trace_range(bad), RequestError);
    CHECK_THROWS_WITH(parse_trace_range(bad), Catch::Contains("log.trace: \"" + bad + "\""));
  }
}

TEST_CASE("the steps of the range are in the rank's file") {
  const test::ScratchFolder folder;
  TraceRecorder recorder;
  StepTracer tracer({2, 4}, folder.path(), 7, 16, recorder);

  for (long step = 1; step <= 5; ++step) {
    run_step(tracer, recorder, step);
  }

  CHECK(num_spans(folder / "rank-00007.json") == 2);
  CHECK_FALSE(recorder.on());
}

TEST_CASE("a run that ends inside the range still writes its trace") {
  const test::ScratchFolder folder;
  TraceRecorder recorder;
  StepTracer tracer({2, 100}, folder.path(), 0, 16, recorder);
  run_step(tracer, recorder, 1);
  run_step(tracer, recorder, 2);

  tracer.finish();

  CHECK(num_spans(folder / "rank-00000.json") == 1);
}

TEST_CASE("without a range nothing is recorded or written") {
  const test::ScratchFolder folder;
  TraceRecorder recorder;
  StepTracer tracer({}, folder.path(), 0, 16, recorder);

  run_step(tracer, recorder, 1);
  tracer.finish();

  CHECK(recorder.events().empty());
  CHECK(std::filesystem::is_empty(folder.path()));
}

}  // namespace lockstep
