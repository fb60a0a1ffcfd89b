// Which sizes of a transformer go together, and with a tensor split.
#pragma once

#include "nn/head_split.h"
#include "nn/model_config.h"
#include "nn/tensor_split.h"

namespace lockstep {

/// How the heads of a transformer are cut into `num_blocks` tensor blocks.
HeadSplit head_split_of(const ModelConfig& config, int num_blocks);

/// Throws RequestError, naming the keys, for sizes that do not fit each other or the split.
void check_transformer_sizes(const ModelConfig& config, const TensorSplit& split);

}  // namespace lockstep
