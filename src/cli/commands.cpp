#include "cli/commands.h"

#include "base/error.h"

namespace lockstep {

int run_command(const Request& request, MpiRuntime& runtime) {
  switch (request.command) {
    case Command::kTrain:
      return run_train(request, runtime);
    case Command::kEvaluate:
      return run_evaluate(request, runtime);
    case Command::kTokenize:
      return run_tokenize(request, runtime);
    case Command::kCheckpointInspect:
    case Command::kCheckpointVerify:
    case Command::kCheckpointExport:
      return run_checkpoint(request, runtime);
    case Command::kBenchKernels:
      return run_bench_kernels(request, runtime);
    case Command::kPlan:
      return run_plan(request, runtime);
    default:
      break;
  }
  // Commands that are not there yet were refused when the request was read.
  LOCKSTEP_CHECK(false);
  return 0;
}

}  // namespace lockstep
