#include "parallel/schedule_check.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr long kClasses = 3;

// Whole backwards and those of the input take the same place.
long class_of(SchedulePass pass) {
  switch (pass) {
    case SchedulePass::kForward:
      return 0;
    case SchedulePass::kBackward:
    case SchedulePass::kBackwardInput:
      return 1;
    case SchedulePass::kBackwardWeight:
      return 2;
  }
  LOCKSTEP_CHECK(false);
  return 0;
}

// A flag for every pass that the schedule must have.
class PassSet {
 public:
  explicit PassSet(const PipelineSchedule& schedule)
      : schedule_(schedule),
        flags_(static_cast<std::size_t>(kClasses * schedule.global_stages() *
                                        schedule.micro_batches)) {}

  [[nodiscard]] bool contains(int rank, const ScheduleEntry& entry) const {
    return flags_[slot(rank, entry)] != 0;
  }
  void insert(int rank, const ScheduleEntry& entry) { flags_[slot(rank, entry)] = 1; }

 private:
  [[nodiscard]] std::size_t slot(int rank, const ScheduleEntry& entry) const {
    const long stage = class_of(entry.pass) * schedule_.global_stages() +
                       schedule_.global_stage(rank, entry.chunk);
    return static_cast<std::size_t>(stage * schedule_.micro_batches + entry.micro_batch);
  }

  const PipelineSchedule& schedule_;
  std::vector<char> flags_;
};

std::vector<SchedulePass> passes_of(const PipelineSchedule& schedule) {
  using P = SchedulePass;
  return schedule.splits_backward()
             ? std::vector{P::kForward, P::kBackwardInput, P::kBackwardWeight}
             : std::vector{P::kForward, P::kBackward};
}

// Whether the table has the passes it must have, in ascending order.
class ContentCheck {
 public:
  explicit ContentCheck(const PipelineSchedule& schedule)
      : schedule_(schedule), passes_(passes_of(schedule)), seen_(schedule) {}

  void run() {
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      check_rank(rank);
    }
  }

 private:
  void check_rank(int rank) {
    // Of each class and chunk the micro-batch before.
    std::vector<long> before(static_cast<std::size_t>(kClasses * schedule_.virtual_stages), -1);
    const auto& entries = schedule_.ranks[static_cast<std::size_t>(rank)];
    for (std::size_t index = 0; index < entries.size(); ++index) {
      const ScheduleEntry& entry = entries[index];
      const std::string what =
          fmt::format("schedule: rank {}, entry {}, {}", rank, index, schedule_.describe(entry));
      check_known(entry, what);
      if (seen_.contains(rank, entry)) {
        throw_error("{}: stands there a second time", what);
      }
      seen_.insert(rank, entry);
      long& last = before[static_cast<std::size_t>(class_of(entry.pass) * schedule_.virtual_stages +
                                                   entry.chunk)];
      if (entry.micro_batch < last) {
        throw_error(
            "{}: comes after that of micro-batch {}; within a chunk they must ascend", what, last);
      }
      last = entry.micro_batch;
    }
    check_complete(rank);
  }

  void check_known(const ScheduleEntry& entry, const std::string& what) const {
    if (std::find(passes_.begin(), passes_.end(), entry.pass) == passes_.end()) {
      throw_error("{}: {} {} its backward passes",
                  what,
                  name_of(schedule_.kind),
                  schedule_.splits_backward() ? "splits" : "does not split");
    }
    if (entry.chunk < 0 || entry.chunk >= schedule_.virtual_stages || entry.micro_batch < 0 ||
        entry.micro_batch >= schedule_.micro_batches) {
      throw_error("{}: there are {} chunks a rank and {} micro-batches",
                  what,
                  schedule_.virtual_stages,
                  schedule_.micro_batches);
    }
  }

  void check_complete(int rank) const {
    for (const SchedulePass pass : passes_) {
      for (int chunk = 0; chunk < schedule_.virtual_stages; ++chunk) {
        check_complete(rank, pass, chunk);
      }
    }
  }

  void check_complete(int rank, SchedulePass pass, int chunk) const {
    for (long micro_batch = 0; micro_batch < schedule_.micro_batches; ++micro_batch) {
      const ScheduleEntry entry{pass, chunk, micro_batch};
      if (!seen_.contains(rank, entry)) {
        throw_error("schedule: rank {}: {} is missing", rank, schedule_.describe(entry));
      }
    }
  }

  const PipelineSchedule& schedule_;
  const std::vector<SchedulePass> passes_;
  PassSet seen_;
};

// Runs every rank as far as it comes, until all have ended or none can go on.
class Replay {
 public:
  explicit Replay(const PipelineSchedule& schedule)
      : schedule_(schedule), done_(schedule), next_(static_cast<std::size_t>(schedule.stages), 0) {}

  std::vector<EntryPlace> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < schedule_.stages; ++rank) {
        while (!has_ended(rank) && !missing_of(rank)) {
          done_.insert(rank, head_of(rank));
          order_.push_back({rank, next_[static_cast<std::size_t>(rank)]++});
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.stages; ++rank) {
      if (!has_ended(rank)) {
        refuse(rank);
      }
    }
    return std::move(order_);
  }

 private:
  [[nodiscard]] const std::vector<ScheduleEntry>& entries_of(int rank) const {
    return schedule_.ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool has_ended(int rank) const {
    return next_[static_cast<std::size_t>(rank)] == std::ssize(entries_of(rank));
  }
  [[nodiscard]] const ScheduleEntry& head_of(int rank) const {
    return entries_of(rank)[static_cast<std::size_t>(next_[static_cast<std::size_t>(rank)])];
  }

  // The pass that the rank's next entry waits for, if it waits.
  [[nodiscard]] std::optional<RankEntry> missing_of(int rank) const {
    const ScheduleEntry& entry = head_of(rank);
    const auto own = PipelineSchedule::own_input(entry);
    if (own && !done_.contains(rank, *own)) {
      return RankEntry{rank, *own};
    }
    const auto other = schedule_.incoming(rank, entry);
    return other && !done_.contains(other->rank, other->entry) ? other : std::nullopt;
  }

  // `rank` is stuck, so the rank it waits for is stuck as well: going on, some rank comes again.
  [[noreturn]] void refuse(int rank) const {
    std::vector<int> path;
    auto again = path.end();
    while (again == path.end()) {
      path.push_back(rank);
      rank = missing_of(rank)->rank;
      again = std::find(path.begin(), path.end(), rank);
    }
    std::string text;
    for (; again != path.end(); ++again) {
      const RankEntry missing = *missing_of(*again);
      text += fmt::format("{}rank {}, entry {}, {} waits for {} of rank {}",
                          text.empty() ? "" : "; ",
                          *again,
                          next_[static_cast<std::size_t>(*again)],
                          schedule_.describe(head_of(*again)),
                          schedule_.describe(missing.entry),
                          missing.rank);
    }
    throw_error("schedule: deadlock: {}, which comes later there", text);
  }

  const PipelineSchedule& schedule_;
  PassSet done_;
  std::vector<long> next_;
  std::vector<EntryPlace> order_;
};

void count_activations(const PipelineSchedule& schedule, ScheduleReport& report) {
  const SchedulePass last = passes_of(schedule).back();
  for (const auto& entries : schedule.ranks) {
    std::vector<long> alive(static_cast<std::size_t>(schedule.virtual_stages), 0);
    std::vector<long> peaks = alive;
    long all = 0;
    long peak = 0;
    for (const ScheduleEntry& entry : entries) {
      const auto chunk = static_cast<std::size_t>(entry.chunk);
      const int change = entry.pass == SchedulePass::kForward ? 1 : (entry.pass == last ? -1 : 0);
      alive[chunk] += change;
      all += change;
      peaks[chunk] = std::max(peaks[chunk], alive[chunk]);
      peak = std::max(peak, all);
    }
    report.peak_activations.push_back(peak);
    report.chunk_peaks.push_back(std::move(peaks));
  }
}

}  // namespace

ScheduleReport check_schedule(const PipelineSchedule& schedule) {
  if (schedule.stages < 1 || schedule.virtual_stages < 1 || schedule.micro_batches < 1 ||
      std::ssize(schedule.ranks) != schedule.stages) {
    throw_error("schedule: {} lists of entries for {} stages, {} chunks a rank, {} micro-batches",
                schedule.ranks.size(),
                schedule.stages,
                schedule.virtual_stages,
                schedule.micro_batches);
  }
  ContentCheck(schedule).run();
  ScheduleReport report;
  report.order = Replay(schedule).run();
  count_activations(schedule, report);
  return report;
}

}  // namespace lockstep
