// The commands, each from a checked request to an exit status.
#pragma once

#include "cli/request.h"
#include "comm/mpi/runtime.h"

namespace lockstep {

/// Runs the request's command. Called by all ranks.
/// Errors: RequestError on all ranks alike; Error (and anything else) possibly on one.
int run_command(const Request& request, MpiRuntime& runtime);

int run_train(const Request& request, MpiRuntime& runtime);
int run_evaluate(const Request& request, MpiRuntime& runtime);
/// One rank works, on all its cores; others return at once.
int run_tokenize(const Request& request, MpiRuntime& runtime);
/// checkpoint inspect | verify | export; one rank works.
int run_checkpoint(const Request& request, MpiRuntime& runtime);
/// One rank works, on the device of run.device, and prints to standard output; others return at once.
int run_bench_kernels(const Request& request, MpiRuntime& runtime);
/// One rank prints to standard output: memory, or with --draw-schedule the schedule.
int run_plan(const Request& request, MpiRuntime& runtime);

}  // namespace lockstep
