// From a configuration to the outline of a run on ranks that need not exist.
#pragma once

#include <string>
#include <vector>

#include "training/rank_plan.h"

namespace lockstep {

struct PlanOutline {
  RunOutline run;
  std::vector<std::string> assumptions;  ///< what was taken for granted, a line each
};

/// The run that `config` describes on data x pipeline x tensor ranks, `ranks_per_host` neighbouring ones
/// a host (0: all on one). Data is not read, but for the vocabulary where neither configuration nor
/// tokeniser say it and data.train is there. Checkpoints in train.output_dir are not looked at.
/// Errors: RequestError for a mesh that does not go with the model, a vocabulary that is unknown.
PlanOutline outline_for_plan(const TrainingConfig& config, long ranks_per_host);

}  // namespace lockstep
