#include "parallel/schedule_timeline.h"

#include <cmath>
#include <limits>
#include <utility>

#include "support/catch.h"
#include "support/error_text.h"
#include "unit/parallel/schedules.h"

using Catch::Matchers::Contains;
using lockstep::test::error_of;
using lockstep::test::for_many_schedules;

namespace lockstep {
namespace {

constexpr auto k1F1B = ScheduleKind::kOneForwardOneBackward;

void check_times(const ScheduleTimeline& timeline,
                 std::size_t rank,
                 const std::vector<double>& starts,
                 const std::vector<double>& ends) {
  REQUIRE(timeline.ranks[rank].size() == starts.size());
  for (std::size_t i = 0; i < starts.size(); ++i) {
    CHECK(timeline.ranks[rank][i].start == starts[i]);
    CHECK(timeline.ranks[rank][i].end == ends[i]);
  }
}

}  // namespace

TEST_CASE("the simulated bubble is the formula's wherever there is one") {
  const PassCosts costs[] = {PassCosts{}, {1, 1, 1, 0.5}, {3, 1, 1, 3}, {2, 7, 4, 1}, {1, 9, 9, 0}};
  long compared = 0;
  for_many_schedules([&](const PipelineSchedule& schedule) {
    for (const PassCosts& cost : costs) {
      const auto formula = bubble_formula(schedule, cost);
      if (!formula) {
        continue;
      }
      ScheduleCosts all;
      all.stages = {cost};
      for (const double bubble : simulate(schedule, all).bubbles) {
        INFO(name_of(schedule.kind)
             << " " << schedule.stages << " stages, " << schedule.virtual_stages << " chunks, "
             << schedule.micro_batches << " micro-batches, forward " << cost.forward);
        CHECK(std::abs(bubble - *formula) <= 1e-12);
      }
      ++compared;
    }
  });
  // gpipe and 1f1b 160 sizes each; zero-bubble those with M >= P: 132; interleaved 3 times the 52
  // multiples of P up to 20.
  CHECK(compared == 5 * (160 + 160 + 132 + 3 * 52));
}

TEST_CASE("formulas are those of the papers, and absent where they do not hold") {
  const PassCosts costs;
  const auto formula = [&](ScheduleKind kind, long chunks, long micro_batches) {
    return bubble_formula(make_schedule(kind, 4, chunks, micro_batches), costs);
  };

  CHECK(formula(ScheduleKind::kGpipe, 1, 8) == 3.0 / 11);
  CHECK(formula(k1F1B, 1, 8) == 3.0 / 11);
  CHECK(formula(ScheduleKind::kInterleaved, 2, 8) == 3.0 / 19);
  CHECK(formula(ScheduleKind::kZeroBubble, 1, 8) == 3.0 / 27);
  CHECK_FALSE(formula(ScheduleKind::kInterleaved, 2, 6));
  CHECK_FALSE(formula(ScheduleKind::kZeroBubble, 1, 3));
  CHECK_FALSE(bubble_formula(make_schedule(ScheduleKind::kZeroBubble, 4, 1, 8), {1, 3, 1, 2}));
}

TEST_CASE(
    "interleaved takes no longer than 1f1b, also where micro-batches are no multiple of stages") {
  ScheduleCosts whole;
  ScheduleCosts halves;
  halves.stages = {{0.5, 1, 0.5, 0.5}};
  for (const long stages : {2L, 4L, 8L}) {
    for (long count = 1; count <= 40; ++count) {
      const double plain = simulate(make_schedule(k1F1B, stages, 1, count), whole).total;
      const double cut =
          simulate(make_schedule(ScheduleKind::kInterleaved, stages, 2, count), halves).total;
      INFO(stages << " stages, " << count << " micro-batches");
      CHECK(cut <= plain);
    }
  }
}

TEST_CASE("messages and the costs of each stage delay what waits for them") {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::kGpipe, 2, 1, 1);
  ScheduleCosts costs;
  costs.stages = {{1, 2, 0, 0}, {4, 8, 0, 0}};
  costs.message = 0.5;

  const ScheduleTimeline timeline = simulate(schedule, costs);

  check_times(timeline, 0, {0, 14}, {1, 16});
  check_times(timeline, 1, {1.5, 5.5}, {5.5, 13.5});
  CHECK(timeline.total == 16);
  CHECK(timeline.bubbles == std::vector<double>{1 - 3.0 / 16, 1 - 12.0 / 16});
}

TEST_CASE("costs are of global stages, and chunks of one rank send no messages") {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::kInterleaved, 1, 2, 1);
  ScheduleCosts costs;
  costs.stages = {{1, 10, 0, 0}, {2, 20, 0, 0}};
  costs.message = 100;

  check_times(simulate(schedule, costs), 0, {0, 1, 3, 23}, {1, 3, 23, 33});
}

TEST_CASE("one stage never waits") {
  for (const ScheduleKind kind : test::kAllKinds) {
    const long chunks = kind == ScheduleKind::kInterleaved ? 3 : 1;
    const PipelineSchedule schedule = make_schedule(kind, 1, chunks, 5);

    CHECK(simulate(schedule, {}).bubbles == std::vector<double>{0});
    CHECK(bubble_formula(schedule, {}) == 0.0);
  }
}

TEST_CASE("costs that are negative, not finite, all zero or of other stages are refused") {
  const PipelineSchedule schedule = make_schedule(k1F1B, 2, 1, 2);
  const auto refusal = [&](std::vector<PassCosts> stages, double message) {
    ScheduleCosts costs;
    costs.stages = std::move(stages);
    costs.message = message;
    return error_of([&] { simulate(schedule, costs); });
  };

  CHECK_THAT(refusal({{-1, 1, 1, 1}}, 0), Contains("not negative"));
  CHECK_THAT(refusal({{1, std::nan(""), 1, 1}}, 0), Contains("finite"));
  CHECK_THAT(refusal({{}}, std::numeric_limits<double>::infinity()), Contains("finite"));
  CHECK_THAT(refusal({{0, 0, 0, 0}}, 0), Contains("time of 0"));
  CHECK_THAT(refusal({{}, {}, {}}, 0), Contains("costs of 3 stages, expected 1 for all or 2"));
  CHECK_THAT(refusal({}, 0), Contains("costs of 0 stages"));
  CHECK(refusal({{}, {}}, 1).empty());
}

}  // namespace lockstep
