#include "formats/chrome_trace.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {

TEST_CASE("a trace is JSON with named tracks and one complete event a span") {
  const std::vector<TraceEvent> events{
      {"linear", "forward", 1'002'500, 1'004'001, TraceTrack::kCompute},
      {"odd \"name\"", "gradients", 999'999, 1'000'000, TraceTrack::kCommunication},
  };

  const auto trace = nlohmann::json::parse(chrome_trace_json(events, 3, 1'000'000));

  const auto& list = trace["traceEvents"];
  REQUIRE(list.size() == 6);
  CHECK(list[0]["args"]["name"] == "rank 3");
  CHECK(list[1]["args"]["name"] == "compute");
  CHECK(list[2]["args"]["name"] == "communication");
  CHECK(list[3]["args"]["name"] == "waiting");
  CHECK(list[4] == nlohmann::json::parse(R"({"ph":"X","name":"linear","cat":"forward","pid":3,
                                             "tid":0,"ts":2.5,"dur":1.501})"));
  CHECK(list[5] == nlohmann::json::parse(R"({"ph":"X","name":"odd \"name\"","cat":"gradients",
                                             "pid":3,"tid":1,"ts":-0.001,"dur":0.001})"));
}

TEST_CASE("a trace tells which micro-batch a span belongs to, and the time of its zero") {
  const std::vector<TraceEvent> events{
      {"forward", "pass", 1, 2, TraceTrack::kCompute, {.chunk = 1, .micro_batch = 7}}};

  const auto trace = nlohmann::json::parse(chrome_trace_json(events, 0, 123'456'789'012'345));

  CHECK(trace["traceEvents"][4]["args"] == nlohmann::json{{"chunk", 1}, {"micro_batch", 7}});
  CHECK(trace["otherData"]["origin_ns"] == 123'456'789'012'345);
}

TEST_CASE("a long run keeps nanoseconds in its trace") {
  constexpr std::int64_t kLate = 123'456'789'012'345;
  const std::vector<TraceEvent> events{{"step", "train", kLate, kLate + 1}};

  const std::string json = chrome_trace_json(events, 0, 0);

  CHECK_THAT(json, Catch::Contains("\"ts\":123456789012.345,\"dur\":0.001}"));
}

TEST_CASE("a trace file holds the trace") {
  const test::ScratchFolder folder;
  const std::vector<TraceEvent> events{{"step", "train", 1, 2}};

  write_chrome_trace(folder / "rank-00000.json", events, 0, 0);

  CHECK(test::read_file(folder / "rank-00000.json") == chrome_trace_json(events, 0, 0));
}

}  // namespace lockstep
