// GPT-2- and Llama-type language models.
#pragma once

#include <memory>

#include "nn/model.h"

namespace lockstep {

/// architecture gpt2 | llama. Parameters, in flat order: the embedding unless it is tied, the
/// positions (gpt2), the blocks, the final norm, the head (or the tied embedding, which is thus
/// reduced first in a backward pass).
std::unique_ptr<Model> make_transformer(const ModelConfig& config, DType dtype, TensorSplit split);

/// Some layers of it, whose parameters follow those in `table`. A tied embedding whose two uses are in
/// different parts is declared by both: each has one side of its gradient.
std::unique_ptr<Model> make_transformer_part(const ModelConfig& config,
                                             DType dtype,
                                             const ModelPart& part,
                                             std::shared_ptr<ParameterTable> table);

}  // namespace lockstep
