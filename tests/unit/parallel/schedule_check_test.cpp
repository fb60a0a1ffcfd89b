#include "parallel/schedule_check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "support/catch.h"
#include "support/error_text.h"
#include "unit/parallel/schedules.h"

using Catch::Matchers::Contains;
using lockstep::test::backward;
using lockstep::test::error_of;
using lockstep::test::for_many_schedules;
using lockstep::test::forward;

namespace lockstep {
namespace {

constexpr auto k1F1B = ScheduleKind::kOneForwardOneBackward;

std::string refusal_of(const PipelineSchedule& schedule) {
  return error_of([&] { check_schedule(schedule); });
}

// Interleaved as the paper counts, but with a last group that closes ranks.
std::vector<ScheduleEntry> closed_ranks(long stages, int chunks, long micro_batches, long rank) {
  std::vector<ScheduleEntry> forwards;
  std::vector<ScheduleEntry> backwards;
  for (long first = 0; first < micro_batches; first += stages) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (long m = first; m < std::min(first + stages, micro_batches); ++m) {
        forwards.push_back(forward(m, chunk));
        backwards.push_back(backward(m, chunks - 1 - chunk));
      }
    }
  }
  const auto lag = static_cast<std::size_t>(2 * (stages - 1 - rank) + (chunks - 1) * stages);
  std::vector<ScheduleEntry> entries;
  for (std::size_t turn = 0; turn < forwards.size() + lag; ++turn) {
    if (turn < forwards.size()) {
      entries.push_back(forwards[turn]);
    }
    if (turn >= lag) {
      entries.push_back(backwards[turn - lag]);
    }
  }
  return entries;
}

}  // namespace

TEST_CASE("all schedules pass the check, whatever the numbers") {
  for_many_schedules([](const PipelineSchedule& schedule) {
    INFO(name_of(schedule.kind) << " " << schedule.stages << " stages, " << schedule.virtual_stages
                                << " chunks, " << schedule.micro_batches << " micro-batches");
    CHECK(refusal_of(schedule).empty());
  });
}

TEST_CASE("schedules at the largest sizes pass the check") {
  CHECK(refusal_of(make_schedule(ScheduleKind::kInterleaved, 64, 8, 1023)).empty());
  CHECK(refusal_of(make_schedule(ScheduleKind::kInterleaved, 64, 8, 1)).empty());
  CHECK(refusal_of(make_schedule(ScheduleKind::kZeroBubble, 64, 1, 1024)).empty());
  CHECK(refusal_of(make_schedule(k1F1B, 64, 1, 1024)).empty());
  CHECK(refusal_of(make_schedule(ScheduleKind::kGpipe, 64, 1, 1024)).empty());
}

TEST_CASE("the order of a report holds every entry after those it needs") {
  const PipelineSchedule schedule = make_schedule(ScheduleKind::kInterleaved, 3, 2, 5);
  const ScheduleReport report = check_schedule(schedule);

  std::set<std::pair<int, long>> done;
  const auto is_done = [&](int rank, const ScheduleEntry& entry) {
    const auto& entries = schedule.ranks[static_cast<std::size_t>(rank)];
    const auto found = std::find(entries.begin(), entries.end(), entry);
    return done.contains({rank, found - entries.begin()});
  };
  for (const auto& [rank, index] : report.order) {
    const ScheduleEntry& entry =
        schedule.ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(index)];
    CHECK((index == 0 || done.contains({rank, index - 1})));
    const auto own = PipelineSchedule::own_input(entry);
    CHECK((!own || is_done(rank, *own)));
    const auto other = schedule.incoming(rank, entry);
    CHECK((!other || is_done(other->rank, other->entry)));
    CHECK(done.emplace(rank, index).second);
  }
  CHECK(done.size() == 3 * 2 * 5 * 2);
}

TEST_CASE("gpipe keeps all activations, 1f1b those of the ranks that follow, zero-bubble no more") {
  for_many_schedules([](const PipelineSchedule& schedule) {
    const ScheduleReport report = check_schedule(schedule);
    for (long rank = 0; rank < schedule.stages; ++rank) {
      const long peak = report.peak_activations[static_cast<std::size_t>(rank)];
      const long count = schedule.micro_batches;
      INFO(name_of(schedule.kind) << " rank " << rank << " of " << schedule.stages << ", "
                                  << schedule.virtual_stages << " chunks, " << count);
      switch (schedule.kind) {
        case ScheduleKind::kGpipe:
          CHECK(peak == count);
          break;
        case ScheduleKind::kOneForwardOneBackward:
          CHECK(peak == std::min<long>(schedule.stages - rank, count));
          break;
        case ScheduleKind::kZeroBubble:
          CHECK(peak == std::min<long>(schedule.stages, count));
          break;
        case ScheduleKind::kInterleaved: {
          const long most = 2 * (schedule.stages - 1 - rank) +
                            (schedule.virtual_stages - 1) * schedule.stages + 1;
          CHECK(peak <= std::min(most, schedule.virtual_stages * count));
          CHECK((count % schedule.stages != 0 ||
                 peak == std::min(most, schedule.virtual_stages * count)));
        }
      }
    }
  });
}

TEST_CASE("activations of a chunk are counted for themselves") {
  PipelineSchedule schedule{ScheduleKind::kInterleaved, 1, 2, 2, {}};
  schedule.ranks = {{forward(0, 0),
                     forward(1, 0),
                     forward(0, 1),
                     backward(0, 1),
                     backward(0, 0),
                     forward(1, 1),
                     backward(1, 1),
                     backward(1, 0)}};

  const ScheduleReport report = check_schedule(schedule);

  CHECK(report.peak_activations == std::vector<long>{3});
  CHECK(report.chunk_peaks == std::vector<std::vector<long>>{{2, 1}});
}

TEST_CASE("passes that are missing, doubled, foreign or in the wrong order are named") {
  const PipelineSchedule good = make_schedule(k1F1B, 3, 1, 4);  // rank 1: F0 F1 B0 F2 B1 F3 B2 B3

  PipelineSchedule missing = good;
  missing.ranks[1].pop_back();
  CHECK_THAT(refusal_of(missing), Contains("rank 1: backward of micro-batch 3 is missing"));

  PipelineSchedule doubled = good;
  doubled.ranks[1][3] = forward(1);
  CHECK_THAT(refusal_of(doubled),
             Contains("rank 1, entry 3, forward of micro-batch 1: stands there a second time"));

  PipelineSchedule descending = good;
  std::swap(descending.ranks[1][6], descending.ranks[1][7]);
  CHECK_THAT(refusal_of(descending),
             Contains("rank 1, entry 7, backward of micro-batch 2: comes after that of micro-batch "
                      "3; within a chunk they must ascend"));

  PipelineSchedule foreign = good;
  foreign.ranks[2][0] = forward(4);
  CHECK_THAT(refusal_of(foreign), Contains("rank 2, entry 0, forward of micro-batch 4: there are"));
  foreign.ranks[2][0] = forward(0, 1);
  CHECK_THAT(refusal_of(foreign), Contains("rank 2, entry 0, forward of micro-batch 0: there are"));
  foreign.ranks[2][0] = {SchedulePass::kBackwardInput, 0, 0};
  CHECK_THAT(refusal_of(foreign), Contains("1f1b does not split its backward passes"));

  PipelineSchedule short_of_ranks = good;
  short_of_ranks.ranks.pop_back();
  CHECK_THAT(refusal_of(short_of_ranks), Contains("2 lists of entries for 3 stages"));
}

TEST_CASE("a backward before its forward and a weight gradient before its input are named") {
  PipelineSchedule schedule = make_schedule(k1F1B, 2, 1, 2);
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);
  CHECK_THAT(refusal_of(schedule),
             Contains("rank 1, entry 0, backward of micro-batch 0 waits for forward of micro-batch "
                      "0 of rank 1"));

  PipelineSchedule split = make_schedule(ScheduleKind::kZeroBubble, 1, 1, 1);
  std::swap(split.ranks[0][1], split.ranks[0][2]);
  CHECK_THAT(refusal_of(split),
             Contains("rank 0, entry 1, backward_weight of micro-batch 0 waits for backward_input "
                      "of micro-batch 0 of rank 0"));
}

TEST_CASE("ranks that wait for each other are named, and only those") {
  PipelineSchedule schedule = make_schedule(k1F1B, 3, 1, 2);
  schedule.ranks[1] = {forward(0), backward(0), forward(1), backward(1)};
  schedule.ranks[2] = {forward(0), forward(1), backward(0), backward(1)};

  const std::string refusal = refusal_of(schedule);

  CHECK_THAT(refusal,
             Contains("rank 1, entry 1, backward of micro-batch 0 waits for backward of "
                      "micro-batch 0 of rank 2; rank 2, entry 1, forward of micro-batch 1 waits "
                      "for forward of micro-batch 1 of rank 1"));
  CHECK_THAT(refusal, !Contains("rank 0"));
}

TEST_CASE("interleaved with a last group that closes ranks would lock up, so it keeps places") {
  PipelineSchedule schedule = make_schedule(ScheduleKind::kInterleaved, 5, 2, 7);
  for (long rank = 0; rank < 5; ++rank) {
    schedule.ranks[static_cast<std::size_t>(rank)] = closed_ranks(5, 2, 7, rank);
  }

  CHECK_THAT(refusal_of(schedule), Contains("deadlock"));
}

}  // namespace lockstep
