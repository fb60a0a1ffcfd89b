// A model to start from or to evaluate: a checkpoint, a run's folder or a Hugging Face folder.
#pragma once

#include <string>

#include "nn/model_config.h"
#include "parallel/model_view.h"

namespace lockstep {

/// Architecture and sizes of `source`. Errors: RequestError when it is none of the above, or damaged.
ModelConfig read_source_config(const std::string& source);

/// Reads the weights of `source` into `model`, whose table is that of `config`. The optimiser's state
/// is left alone. Errors: RequestError, before anything is changed.
void load_source_weights(const std::string& source,
                         const ModelConfig& config,
                         const ModelView& model);

}  // namespace lockstep
