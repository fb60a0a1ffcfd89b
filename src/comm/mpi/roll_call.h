// Finds out at start-up, within a limit, whether all ranks are there.
#pragma once

namespace lockstep {

/// Returns when every rank of the world has called it. Throws Error on every rank that has, naming
/// the ranks that are missing, after `time_limit_seconds` (0: never). Two messages a rank.
void roll_call(double time_limit_seconds);

}  // namespace lockstep
