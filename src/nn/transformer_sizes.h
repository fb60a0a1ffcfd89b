// Which sizes of a transformer go together, and with a tensor split; sizes that follow from others.
#pragma once

#include "nn/head_split.h"
#include "nn/model_config.h"
#include "nn/tensor_split.h"

namespace lockstep {

/// How the heads of a transformer are cut into `num_blocks` tensor blocks.
HeadSplit head_split_of(const ModelConfig& config, int num_blocks);

/// Columns of the feed-forward activation: model.ffn_hidden_size, or what 0 stands for.
long ffn_size_of(const ModelConfig& config);

/// Rows of the logits that are computed at a time: `rows` of `padded_vocab` columns are never whole. The
/// same whatever the ranks hold, as gradients of the head are added up chunk by chunk.
long logit_chunk_rows(long rows, long padded_vocab);

/// Throws RequestError, naming the keys, for sizes that do not fit each other or the split.
void check_transformer_sizes(const ModelConfig& config, const TensorSplit& split);

}  // namespace lockstep
