// model.init_from: what it names and what it says of the model.
#pragma once

#include "cli/configuration.h"

namespace lockstep {

/// If model.init_from is set: takes architecture and sizes from the checkpoint or Hugging Face folder
/// it names. Errors: RequestError when it names neither, or when a [model] key that the user set
/// disagrees (model.seq_length may be smaller).
void adopt_model_of_source(Configuration& config);

}  // namespace lockstep
