#include "parallel/schedule_text.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "parallel/schedule_check.h"

namespace lockstep {
namespace {

constexpr int kLeastWidth = 40;
constexpr std::size_t kLabelWidth = 10;  // "rank 12   "
constexpr double kMostColumns = 1e6;     // before columns become longer than the shortest pass
constexpr char kIdle = '.';
constexpr std::string_view kGap = " ~ ";

char sign_of(const ScheduleEntry& entry) {
  const auto digit = static_cast<char>(entry.micro_batch % 10);
  switch (entry.pass) {
    case SchedulePass::kForward:
      return static_cast<char>('0' + digit);
    case SchedulePass::kBackward:
    case SchedulePass::kBackwardInput:
      return static_cast<char>('a' + digit);
    case SchedulePass::kBackwardWeight:
      return static_cast<char>('A' + digit);
  }
  LOCKSTEP_CHECK(false);
  return kIdle;
}

// Which columns are shown: [0, left) and [all - right, all); all of them when nothing is left out.
struct Columns {
  double time = 1;  // of a column
  long all = 0;
  long left = 0;
  long right = 0;
};

Columns choose_columns(const ScheduleTimeline& timeline, int width) {
  Columns columns;
  columns.time = timeline.total / kMostColumns;
  double shortest = timeline.total;
  for (const auto& times : timeline.ranks) {
    for (const EntryTime& time : times) {
      const double cost = time.end - time.start;
      shortest = cost > 0 ? std::min(shortest, cost) : shortest;
    }
  }
  columns.time = std::max(columns.time, shortest);
  // Sums of costs are rounded: a hair above a whole number is that number.
  columns.all = static_cast<long>(std::ceil(timeline.total / columns.time - 1e-6));
  const long room = std::max(width, kLeastWidth) - static_cast<long>(kLabelWidth);
  columns.left = columns.all;
  if (columns.all > room) {
    const long shown = room - static_cast<long>(kGap.size());
    columns.left = (shown + 1) / 2;
    columns.right = shown / 2;
  }
  return columns;
}

// Signs and chunks of one rank, a character a column: what runs in the middle of the column.
struct Strip {
  std::string signs;
  std::string chunks;
};

Strip draw_rank(const PipelineSchedule& schedule,
                const ScheduleTimeline& timeline,
                std::size_t rank,
                const Columns& columns) {
  const auto& entries = schedule.ranks[rank];
  const auto& times = timeline.ranks[rank];
  Strip strip;
  std::size_t at = 0;
  for (long column = 0; column < columns.all; ++column) {
    if (column == columns.left) {
      strip.signs += kGap;
      strip.chunks += kGap;
      column = columns.all - columns.right;
    }
    const double middle = (static_cast<double>(column) + 0.5) * columns.time;
    while (at < entries.size() && times[at].end <= middle) {
      ++at;
    }
    const bool idle = at == entries.size() || times[at].start > middle;
    strip.signs += idle ? kIdle : sign_of(entries[at]);
    strip.chunks += idle ? kIdle : static_cast<char>('0' + entries[at].chunk % 10);
  }
  return strip;
}

std::string labelled(const std::string& label, const std::string& line) {
  return fmt::format("{:<{}}{}\n", label, kLabelWidth, line);
}

std::string explain_signs(const PipelineSchedule& schedule) {
  const bool many = schedule.micro_batches > 10;
  std::string text = fmt::format("forward 0 to 9: micro-batch{}; ", many ? " modulo 10" : "");
  if (schedule.splits_backward()) {
    text += "backward_input a to j, backward_weight A to J alike (a and A: 0)";
  } else {
    text += "backward a to j alike (a: 0)";
  }
  if (schedule.virtual_stages > 1) {
    text += "; below: the chunk";
  }
  return text + "; .: idle\n";
}

std::string explain_costs(const PipelineSchedule& schedule, const ScheduleCosts& costs) {
  if (costs.stages.size() > 1) {
    return fmt::format("costs differ by stage, a message {}\n", costs.message);
  }
  const PassCosts& all = costs.stages.front();
  const std::string backward =
      schedule.splits_backward()
          ? fmt::format(
                "backward_input {}, backward_weight {}", all.backward_input, all.backward_weight)
          : fmt::format("backward {}", all.backward);
  return fmt::format("costs: forward {}, {}, message {}\n", all.forward, backward, costs.message);
}

std::string explain_columns(const Columns& columns) {
  std::string text = fmt::format("a column is {} of time", columns.time);
  if (columns.right > 0) {
    text += fmt::format("; columns {} to {} of {} are left out at {}",
                        columns.left,
                        columns.all - columns.right - 1,
                        columns.all,
                        kGap);
  }
  return text + "\n";
}

std::string explain_formula(const PipelineSchedule& schedule, const ScheduleCosts& costs) {
  const bool equal = costs.stages.size() == 1 && costs.message == 0;
  const auto bubble =
      equal ? bubble_formula(schedule, costs.stages.front()) : std::optional<double>();
  if (!bubble) {
    return labelled("formula", "none for these numbers and costs");
  }
  std::string text = "(P - 1) / (M + P - 1)";
  if (schedule.kind == ScheduleKind::kInterleaved) {
    text = "(P - 1) / (V M + P - 1)";
  } else if (schedule.kind == ScheduleKind::kZeroBubble) {
    text = "b / (M (F + B + W) + b), b = (P - 1) (F + max(B - W, 0))";
  }
  return labelled("formula", fmt::format("{:>6.2f} %  {}", 100 * *bubble, text));
}

std::string table_of_ranks(const ScheduleTimeline& timeline, const ScheduleReport& report) {
  std::string text = labelled("", "  bubble  peak activations (of each chunk)");
  for (std::size_t rank = 0; rank < timeline.bubbles.size(); ++rank) {
    const auto& chunks = report.chunk_peaks[rank];
    text += labelled(fmt::format("rank {}", rank),
                     fmt::format("{:>6.2f} %  {}{}",
                                 100 * timeline.bubbles[rank],
                                 report.peak_activations[rank],
                                 chunks.size() > 1 ? fmt::format(" ({})", fmt::join(chunks, " "))
                                                   : std::string()));
  }
  return text;
}

}  // namespace

std::string draw_schedule(const PipelineSchedule& schedule, const ScheduleCosts& costs, int width) {
  const ScheduleTimeline timeline = simulate(schedule, costs);
  const Columns columns = choose_columns(timeline, width);
  std::string text = fmt::format("{}: {} rank{}, {} chunk{} a rank, {} micro-batch{}\n",
                                 name_of(schedule.kind),
                                 schedule.stages,
                                 schedule.stages == 1 ? "" : "s",
                                 schedule.virtual_stages,
                                 schedule.virtual_stages == 1 ? "" : "s",
                                 schedule.micro_batches,
                                 schedule.micro_batches == 1 ? "" : "es");
  text += explain_signs(schedule) + explain_costs(schedule, costs) + explain_columns(columns);
  text += "\n";
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const Strip strip = draw_rank(schedule, timeline, rank, columns);
    text += labelled(fmt::format("rank {}", rank), strip.signs);
    if (schedule.virtual_stages > 1) {
      text += labelled("  chunk", strip.chunks);
    }
  }
  text += fmt::format("\ntotal time {}\n", timeline.total);
  text += table_of_ranks(timeline, check_schedule(schedule));
  return text + explain_formula(schedule, costs);
}

}  // namespace lockstep
