// config.json of Hugging Face's GPT-2 and Llama: read, and written for what is exported.
#pragma once

#include <string>

#include "nn/model_config.h"

namespace lockstep {

/// The model that `<folder>/config.json` describes (model_type gpt2 or llama, as transformers 4.x
/// and 5.x write it). All sizes are set, none is left 0; seq_length is the folder's number of
/// positions; dropout and init_from keep their defaults. Keys that the file may leave out take
/// transformers' defaults. Unknown keys are ignored, but a known one that asks for other maths
/// than ours (another activation, scaled rotary frequencies, biases, quantised weights) is refused.
/// Errors: RequestError naming the file and the key.
ModelConfig read_hugging_face_config(const std::string& folder);

/// The text of config.json for `config`, all of whose sizes are set; both generations of
/// transformers read it. Ids of special tokens are null, because a model does not know them and
/// transformers' defaults are those of other models.
std::string hugging_face_config_text(const ModelConfig& config);

}  // namespace lockstep
