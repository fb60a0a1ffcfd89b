#include "parallel/pipeline_schedule.h"

#include "support/catch.h"
#include "support/error_text.h"
#include "unit/parallel/schedules.h"

using Catch::Matchers::Contains;
using lockstep::test::backward;
using lockstep::test::forward;
using lockstep::test::kAllKinds;
using lockstep::test::request_error_of;

namespace lockstep {
namespace {

using Entries = std::vector<ScheduleEntry>;
constexpr auto k1F1B = ScheduleKind::kOneForwardOneBackward;

}  // namespace

TEST_CASE("names of schedules are those of parallel.schedule") {
  for (const ScheduleKind kind : kAllKinds) {
    CHECK(schedule_kind(name_of(kind)) == kind);
  }
  CHECK(name_of(ScheduleKind::kZeroBubble) == "zero-bubble");
  CHECK_THAT(request_error_of([] { schedule_kind("2f2b"); }),
             Contains("parallel.schedule") && Contains("2f2b") && Contains("zero-bubble"));
}

TEST_CASE("gpipe runs forwards and then backwards, both ascending") {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::kGpipe, 2, 1, 3);

  const Entries expected{forward(0), forward(1), forward(2), backward(0), backward(1), backward(2)};
  CHECK(schedule.ranks == std::vector<Entries>{expected, expected});
}

TEST_CASE("1f1b warms up by the ranks that follow, or by all micro-batches when there are fewer") {
  const PipelineSchedule schedule = make_schedule(k1F1B, 3, 1, 2);

  CHECK(schedule.ranks == std::vector<Entries>{{forward(0), forward(1), backward(0), backward(1)},
                                               {forward(0), forward(1), backward(0), backward(1)},
                                               {forward(0), backward(0), forward(1), backward(1)}});
}

TEST_CASE("interleaved visits chunks in groups of micro-batches, also a smaller last one") {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::kInterleaved, 2, 2, 3);

  // The last rank lags one group behind. Without the missing micro-batch 3 its list would go on
  // "F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0" (micro-batch.chunk).
  CHECK(schedule.ranks[1] == Entries{forward(0, 0),
                                     forward(1, 0),
                                     forward(0, 1),
                                     backward(0, 1),
                                     forward(1, 1),
                                     backward(1, 1),
                                     forward(2, 0),
                                     backward(0, 0),
                                     backward(1, 0),
                                     forward(2, 1),
                                     backward(2, 1),
                                     backward(2, 0)});
}

TEST_CASE("zero-bubble lets weight gradients lag behind the forward by stages - 1") {
  using P = SchedulePass;
  const PipelineSchedule schedule = make_schedule(ScheduleKind::kZeroBubble, 2, 1, 2);

  CHECK(schedule.ranks == std::vector<Entries>{{{P::kForward, 0, 0},
                                                {P::kForward, 0, 1},
                                                {P::kBackwardInput, 0, 0},
                                                {P::kBackwardWeight, 0, 0},
                                                {P::kBackwardInput, 0, 1},
                                                {P::kBackwardWeight, 0, 1}},
                                               {{P::kForward, 0, 0},
                                                {P::kBackwardInput, 0, 0},
                                                {P::kForward, 0, 1},
                                                {P::kBackwardInput, 0, 1},
                                                {P::kBackwardWeight, 0, 0},
                                                {P::kBackwardWeight, 0, 1}}});
}

TEST_CASE("an entry starts from the neighbouring stage's result, around the end of the ranks") {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::kInterleaved, 3, 2, 1);

  CHECK_FALSE(schedule.incoming(0, forward(0, 0)));
  CHECK_FALSE(schedule.incoming(2, backward(0, 1)));
  CHECK_FALSE(schedule.incoming(1, {SchedulePass::kBackwardWeight, 0, 0}));
  const auto wrapped = schedule.incoming(0, forward(0, 1));
  REQUIRE(wrapped);
  CHECK(wrapped->rank == 2);
  CHECK(wrapped->entry == forward(0, 0));
  const auto back = schedule.incoming(2, backward(0, 0));
  REQUIRE(back);
  CHECK(back->rank == 0);
  CHECK(back->entry == backward(0, 1));
  CHECK_FALSE(PipelineSchedule::own_input(forward(0, 1)));
  CHECK(PipelineSchedule::own_input(backward(0, 1)) == forward(0, 1));
}

TEST_CASE("chunks that do not fit the schedule are refused with both keys") {
  const auto refusal = [](ScheduleKind kind, long chunks) {
    return request_error_of([&] { make_schedule(kind, 2, chunks, 4); });
  };
  for (const ScheduleKind kind : kAllKinds) {
    const bool chunked = kind == ScheduleKind::kInterleaved;
    CHECK_THAT(refusal(kind, chunked ? 1 : 2),
               Contains("parallel.virtual_stages") && Contains("parallel.schedule") &&
                   Contains(std::string(name_of(kind))));
    CHECK_FALSE(refusal(kind, 0).empty());
    CHECK(refusal(kind, chunked ? 2 : 1).empty());
  }
}

TEST_CASE("sizes below one and tables that are too large are refused, not overflown") {
  constexpr long kHuge = 2147483647;
  constexpr long kSizes[][3] = {{0, 1, 1},
                                {1, 1, 0},
                                {kHuge, 1, 1},
                                {1, 1, 1000000000000000},
                                {4096, 1, 4096},
                                {kHuge, 1, kHuge}};
  for (const auto& size : kSizes) {
    CHECK_THAT(request_error_of([&] { make_schedule(k1F1B, size[0], size[1], size[2]); }),
               Contains("parallel.pipeline"));
  }
  CHECK_THAT(request_error_of([] { make_schedule(ScheduleKind::kInterleaved, 2, kHuge, 2); }),
             Contains("parallel.virtual_stages"));
}

}  // namespace lockstep
