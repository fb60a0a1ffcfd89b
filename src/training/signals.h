// Requests to stop, as signals: noticed by one rank, agreed by all, answered with a checkpoint.
#pragma once

namespace lockstep {

/// From now on SIGTERM, SIGINT and SIGUSR1 ask for a stop at the end of the step; a second SIGINT
/// ends the process at once.
void catch_stop_signals();

/// Whether a stop was asked for since catch_stop_signals.
bool stop_requested();

}  // namespace lockstep
