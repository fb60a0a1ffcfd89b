#include "base/trace.h"

#include <string>
#include <thread>

#include "support/catch.h"

namespace lockstep {
namespace {

TraceEvent event(TraceTrack track, std::int64_t begin, std::int64_t end) {
  return {"name", "category", begin, end, track};
}

constexpr auto kCompute = TraceTrack::kCompute;
constexpr auto kCommunication = TraceTrack::kCommunication;

}  // namespace

TEST_CASE("a recorder that is off keeps nothing") {
  TraceRecorder recorder;
  recorder.reserve(4);

  { const TraceSpan span("a", "b", kCompute, recorder); }

  CHECK(recorder.events().empty());
  CHECK(recorder.num_dropped() == 0);
}

TEST_CASE("a span records its name, track and lifetime") {
  TraceRecorder recorder;
  recorder.reserve(4);
  recorder.switch_on(true);
  const std::int64_t before = now_ns();

  { const TraceSpan span("all_reduce", "gradients", kCommunication, recorder); }

  const auto events = recorder.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].name == std::string("all_reduce"));
  CHECK(events[0].category == std::string("gradients"));
  CHECK(events[0].track == kCommunication);
  CHECK(before <= events[0].begin_ns);
  CHECK(events[0].begin_ns <= events[0].end_ns);
  CHECK(events[0].end_ns <= now_ns());
}

TEST_CASE("a span carries the place where it began") {
  TraceRecorder recorder;
  recorder.reserve(4);
  recorder.switch_on(true);

  recorder.set_place({.chunk = 1, .micro_batch = 2});
  {
    const TraceSpan span("forward", "pass", kCompute, recorder);
    recorder.set_place({});
  }
  { const TraceSpan span("update", "step", kCompute, recorder); }

  const auto events = recorder.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].place.chunk == 1);
  CHECK(events[0].place.micro_batch == 2);
  CHECK(events[1].place.micro_batch == -1);
}

TEST_CASE("a span that is open when the recorder is switched is not recorded") {
  TraceRecorder recorder;
  recorder.reserve(4);

  {
    const TraceSpan opened_while_off("a", "b", kCompute, recorder);
    recorder.switch_on(true);
  }
  {
    const TraceSpan closed_while_off("a", "b", kCompute, recorder);
    recorder.switch_on(false);
  }

  CHECK(recorder.events().empty());
}

TEST_CASE("a full ring keeps the latest events in order and counts the others") {
  TraceRecorder recorder;
  recorder.reserve(3);
  recorder.switch_on(true);

  for (std::int64_t i = 0; i < 5; ++i) {
    recorder.record(event(kCompute, i, i + 1));
  }

  const auto events = recorder.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].begin_ns == 2);
  CHECK(events[2].begin_ns == 4);
  CHECK(recorder.num_dropped() == 2);
}

TEST_CASE("threads record side by side without losing events") {
  constexpr std::int64_t kEach = 1000;
  TraceRecorder recorder;
  recorder.reserve(2 * kEach);
  recorder.switch_on(true);
  const auto work = [&recorder](TraceTrack track) {
    for (std::int64_t i = 0; i < kEach; ++i) {
      recorder.record(event(track, i, i + 1));
    }
  };

  std::thread other(work, kCommunication);
  work(kCompute);
  other.join();

  std::int64_t sum = 0;
  for (const TraceEvent& recorded : recorder.events()) {
    sum += recorded.begin_ns;
  }
  CHECK(recorder.num_dropped() == 0);
  CHECK(sum == kEach * (kEach - 1));  // two times 0 + 1 + ... + (kEach - 1)
}

TEST_CASE("communication is hidden where compute runs at the same time") {
  const std::vector<TraceEvent> events{
      event(kCommunication, 5, 25),  // 5..10 and 20..25 are behind compute
      event(kCompute, 0, 10),
      event(kCompute, 20, 30),
      event(kCommunication, 40, 50),
      event(TraceTrack::kWaiting, 0, 100),
  };

  const OverlapReport report = overlap_report(events);

  CHECK(report.compute_ns == 20);
  CHECK(report.communication_ns == 30);
  CHECK(report.hidden_ns == 10);
  CHECK(report.hidden_fraction() == 10.0 / 30.0);
}

TEST_CASE("nested and overlapping events of one track count once") {
  const std::vector<TraceEvent> events{
      event(kCompute, 2, 4),
      event(kCompute, 0, 10),
      event(kCompute, 8, 12),
      event(kCommunication, 3, 11),
      event(kCommunication, 5, 6),
  };

  const OverlapReport report = overlap_report(events);

  CHECK(report.compute_ns == 12);
  CHECK(report.communication_ns == 8);
  CHECK(report.hidden_ns == 8);
}

TEST_CASE("without communication nothing is exposed") {
  CHECK(overlap_report({}).hidden_fraction() == 1.0);
}

}  // namespace lockstep
