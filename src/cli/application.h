// The program: from the command line to an exit status.
#pragma once

namespace lockstep {

/// 0: done; 2: the request was wrong, nothing was written or started; 3: failed while running; 75:
/// stopped on a signal after writing a checkpoint. A rank that fails alone ends the whole job.
int run_application(int argc, char** argv);

}  // namespace lockstep
