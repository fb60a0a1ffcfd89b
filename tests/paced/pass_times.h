// What the passes of a pipeline took by the trace of a run, beside the schedule's table and its formula.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "parallel/pipeline_schedule.h"

namespace lockstep {

/// Medians of the passes in this process' trace, by stage; the schedule's bubble for these costs, simulated and by
/// formula; and the table that the ranks were to follow. As JSON, on rank 0. `seconds` is what the kernels of this rank
/// were to take in a step. Collective over the ranks of the pipeline.
std::string describe_passes(const PipelineSchedule& schedule,
                            double seconds,
                            Communicator& pipeline);

}  // namespace lockstep
