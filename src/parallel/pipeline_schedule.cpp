#include "parallel/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

using Entries = std::vector<ScheduleEntry>;

constexpr long kMostEntries = 1L << 24U;
constexpr std::array<std::pair<ScheduleKind, std::string_view>, 4> kKinds{
    {{ScheduleKind::kGpipe, "gpipe"},
     {ScheduleKind::kOneForwardOneBackward, "1f1b"},
     {ScheduleKind::kInterleaved, "interleaved"},
     {ScheduleKind::kZeroBubble, "zero-bubble"}}};

// Passes of one kind in their order. The i-th of them runs in turn i + lag.
struct Stream {
  Entries entries;
  long lag = 0;
};

// Runs turn after turn; within a turn the streams in the order given.
Entries run_in_turns(const std::vector<Stream>& streams) {
  long turns = 0;
  for (const Stream& stream : streams) {
    turns = std::max(turns, stream.lag + std::ssize(stream.entries));
  }
  Entries out;
  for (long turn = 0; turn < turns; ++turn) {
    for (const Stream& stream : streams) {
      const long index = turn - stream.lag;
      if (index >= 0 && index < std::ssize(stream.entries)) {
        out.push_back(stream.entries[static_cast<std::size_t>(index)]);
      }
    }
  }
  return out;
}

Entries ascending(SchedulePass pass, long micro_batches) {
  Entries entries;
  for (long micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    entries.push_back({pass, 0, micro_batch});
  }
  return entries;
}

// Micro-batches in groups of `stages`, each through all chunks, backwards from the last one. Also
// those that only fill up the last group.
Entries by_groups(SchedulePass pass, const PipelineSchedule& schedule) {
  Entries entries;
  for (long first = 0; first < schedule.micro_batches; first += schedule.stages) {
    for (int turn = 0; turn < schedule.virtual_stages; ++turn) {
      const int chunk = pass == SchedulePass::kForward ? turn : schedule.virtual_stages - 1 - turn;
      for (int place = 0; place < schedule.stages; ++place) {
        entries.push_back({pass, chunk, first + place});
      }
    }
  }
  return entries;
}

Entries interleaved(const PipelineSchedule& schedule, int rank) {
  // As in the paper, twice the lag that dependencies ask for: messages hide behind passes.
  const long lag = 2L * (schedule.stages - 1 - rank) +
                   static_cast<long>(schedule.virtual_stages - 1) * schedule.stages;
  Entries entries = run_in_turns({{by_groups(SchedulePass::kForward, schedule), 0},
                                  {by_groups(SchedulePass::kBackward, schedule), lag}});
  // What is left of a schedule without some micro-batches is one: none depends on another.
  std::erase_if(entries, [&](const ScheduleEntry& entry) {
    return entry.micro_batch >= schedule.micro_batches;
  });
  return entries;
}

Entries entries_of(const PipelineSchedule& schedule, int rank) {
  const long count = schedule.micro_batches;
  const long behind = schedule.stages - 1 - rank;
  Stream forward{ascending(SchedulePass::kForward, count), 0};
  switch (schedule.kind) {
    case ScheduleKind::kGpipe:
      return run_in_turns({std::move(forward), {ascending(SchedulePass::kBackward, count), count}});
    case ScheduleKind::kOneForwardOneBackward:
      return run_in_turns(
          {std::move(forward), {ascending(SchedulePass::kBackward, count), behind}});
    case ScheduleKind::kInterleaved:
      return interleaved(schedule, rank);
    case ScheduleKind::kZeroBubble:
      return run_in_turns({std::move(forward),
                           {ascending(SchedulePass::kBackwardInput, count), behind},
                           {ascending(SchedulePass::kBackwardWeight, count), schedule.stages - 1}});
  }
  LOCKSTEP_CHECK(false);
  return {};
}

void check_sizes(ScheduleKind kind, long stages, long virtual_stages, long micro_batches) {
  const bool chunked = kind == ScheduleKind::kInterleaved;
  if (chunked ? virtual_stages < 2 : virtual_stages != 1) {
    throw_request_error("parallel.virtual_stages = {} does not fit parallel.schedule = \"{}\"; {}",
                        virtual_stages,
                        name_of(kind),
                        chunked ? "expected at least 2 (model chunks a rank)"
                                : "expected 1 (interleaved takes more)");
  }
  if (stages < 1 || micro_batches < 1) {
    throw_request_error("parallel.pipeline = {} with {} micro-batches: expected at least 1 of each",
                        stages,
                        micro_batches);
  }
  // Dividing avoids overflow. A rank has two or three passes a chunk and micro-batch.
  const long passes = kind == ScheduleKind::kZeroBubble ? 3 : 2;
  if (micro_batches > kMostEntries || stages > kMostEntries || virtual_stages > kMostEntries ||
      round_up(micro_batches, chunked ? stages : 1L) >
          kMostEntries / passes / stages / virtual_stages) {
    throw_request_error(
        "parallel.pipeline = {}, parallel.virtual_stages = {} and {} micro-batches (of "
        "train.micro_batch_size) make a table of parallel.schedule with more than {} entries: "
        "lower "
        "one of them",
        stages,
        virtual_stages,
        micro_batches,
        kMostEntries);
  }
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  for (const auto& [known, name] : kKinds) {
    if (known == kind) {
      return name;
    }
  }
  LOCKSTEP_CHECK(false);
  return {};
}

ScheduleKind schedule_kind(std::string_view name) {
  for (const auto& [kind, known] : kKinds) {
    if (known == name) {
      return kind;
    }
  }
  throw_request_error(
      "parallel.schedule = \"{}\": expected gpipe | 1f1b | interleaved | zero-bubble", name);
}

std::string_view name_of(SchedulePass pass) {
  switch (pass) {
    case SchedulePass::kForward:
      return "forward";
    case SchedulePass::kBackward:
      return "backward";
    case SchedulePass::kBackwardInput:
      return "backward_input";
    case SchedulePass::kBackwardWeight:
      return "backward_weight";
  }
  LOCKSTEP_CHECK(false);
  return {};
}

std::optional<RankEntry> PipelineSchedule::incoming(int rank, const ScheduleEntry& entry) const {
  if (entry.pass == SchedulePass::kBackwardWeight) {
    return std::nullopt;
  }
  const int step = entry.pass == SchedulePass::kForward ? -1 : 1;
  const int stage = global_stage(rank, entry.chunk) + step;
  if (stage < 0 || stage >= global_stages()) {
    return std::nullopt;
  }
  return RankEntry{stage % stages, {entry.pass, stage / stages, entry.micro_batch}};
}

std::optional<ScheduleEntry> PipelineSchedule::own_input(const ScheduleEntry& entry) {
  switch (entry.pass) {
    case SchedulePass::kForward:
      break;
    case SchedulePass::kBackward:
    case SchedulePass::kBackwardInput:
      return ScheduleEntry{SchedulePass::kForward, entry.chunk, entry.micro_batch};
    case SchedulePass::kBackwardWeight:
      return ScheduleEntry{SchedulePass::kBackwardInput, entry.chunk, entry.micro_batch};
  }
  return std::nullopt;
}

std::string PipelineSchedule::describe(const ScheduleEntry& entry) const {
  const std::string chunk =
      virtual_stages > 1 ? fmt::format(" in chunk {}", entry.chunk) : std::string();
  return fmt::format("{} of micro-batch {}{}", name_of(entry.pass), entry.micro_batch, chunk);
}

PipelineSchedule make_schedule(ScheduleKind kind,
                               long stages,
                               long virtual_stages,
                               long micro_batches) {
  check_sizes(kind, stages, virtual_stages, micro_batches);
  PipelineSchedule schedule;
  schedule.kind = kind;
  schedule.stages = static_cast<int>(stages);
  schedule.virtual_stages = static_cast<int>(virtual_stages);
  schedule.micro_batches = micro_batches;
  for (int rank = 0; rank < schedule.stages; ++rank) {
    schedule.ranks.push_back(entries_of(schedule, rank));
  }
  return schedule;
}

}  // namespace lockstep
