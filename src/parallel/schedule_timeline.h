// When every entry of a pipeline schedule would run, and how long ranks would wait.
#pragma once

#include <optional>
#include <vector>

#include "parallel/pipeline_schedule.h"

namespace lockstep {

/// What a pass of one global stage costs, in any unit of time.
struct PassCosts {
  double forward = 1;
  double backward = 2;  ///< whole
  double backward_input = 1;
  double backward_weight = 1;

  [[nodiscard]] double of(SchedulePass pass) const;
};

struct ScheduleCosts {
  /// One element for all global stages alike, or one for each of them.
  std::vector<PassCosts> stages{PassCosts{}};
  /// From the end of a pass until its result is there on another rank; nobody computes it.
  double message = 0;
};

struct EntryTime {
  double start = 0;
  double end = 0;
};

struct ScheduleTimeline {
  std::vector<std::vector<EntryTime>> ranks;  ///< as schedule.ranks
  double total = 0;                           ///< end of the last entry; the first starts at 0
  std::vector<double> bubbles;                ///< of each rank: 1 - busy / total
};

/// Runs the schedule in thought: an entry starts once the rank has ended the entry before and what
/// it waits for is there. Throws Error when the schedule fails check_schedule(), when a cost is
/// negative or not finite or all are 0, and when their number fits no schedule. Cost: that of the
/// check.
ScheduleTimeline simulate(const PipelineSchedule& schedule, const ScheduleCosts& costs);

/// The bubble of every rank as a formula, for P stages of equal costs, M micro-batches, V chunks a
/// rank and messages that take no time; none where it does not hold.
/// - gpipe, 1f1b: (P - 1) / (M + P - 1).
/// - interleaved: (P - 1) / (V M + P - 1), for M a multiple of P.
/// - zero-bubble: b / (M (F + B + W) + b) with b = (P - 1) (F + max(B - W, 0)), for M >= P and
///   W <= F; F forward, B backward_input, W backward_weight.
///
/// Derivation of b. The last rank gets its first micro-batch at (P - 1) F and then never waits.
/// Its backward_input of the last micro-batch stands behind all M forwards and inputs and behind
/// M - P weight gradients (they lag by P - 1), so it ends at x = (P - 1) F + M (F + B) + (M - P) W.
/// Ranks before it then have no forwards left, and with W <= F their weight gradients fit between
/// the inputs that arrive: rank r ends that micro-batch at x + (P - 1 - r) B. It then has r + 1
/// weight gradients left and ends at x + (P - 1 - r) B + (r + 1) W, which is linear in r. So the
/// total is the larger one of r = 0 and r = P - 1: M (F + B + W) + b. With B >= W this is the
/// (P - 1) (F + B - W) of Qi et al., and with all three equal a third of 1f1b's.
std::optional<double> bubble_formula(const PipelineSchedule& schedule, const PassCosts& costs);

}  // namespace lockstep
