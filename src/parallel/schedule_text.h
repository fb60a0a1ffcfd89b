// Pipeline schedules drawn as text: a line a rank, columns of time.
#pragma once

#include <string>

#include "parallel/schedule_timeline.h"

namespace lockstep {

/// Draws the simulated timeline: a header that explains the signs, a line for every rank (with
/// several chunks a second one that says which), then the time, the bubble and the peak of
/// activations of every rank, and the formula of the bubble. A column is the shortest pass. What
/// is wider than `width` characters (at least 40; other lines may be longer) loses columns in the
/// middle, and says which.
/// Throws Error as simulate() does.
std::string draw_schedule(const PipelineSchedule& schedule,
                          const ScheduleCosts& costs,
                          int width = 200);

}  // namespace lockstep
