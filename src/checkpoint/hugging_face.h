// Models that come from, and leave as, Hugging Face folders: config.json and safetensors files.
#pragma once

#include <string>

#include "checkpoint/hugging_face_config.h"
#include "nn/model_config.h"
#include "nn/parameter_table.h"
#include "parallel/model_view.h"

namespace lockstep {

/// Sets the weights of `model` from the safetensors files of `folder`; values of f32, bf16 and f16 become f32 exactly. `config` is that of the
/// model: read_hugging_face_config's, with seq_length as it was or smaller, in which case
/// the first positions are taken. Tensors may lack the prefix of the model without its head. A head
/// beside a tied embedding must equal it.
/// Called by every rank that holds weights; not collective. The optimiser's state is left alone.
/// Errors: RequestError naming the file or folder and the tensor, before any weight is changed:
/// missing, unknown or doubled tensors, other shapes or dtypes, values that are not finite.
/// Cost: the files are read twice (checked, then copied), beside memory for one parameter, twice.
void load_hugging_face(const std::string& folder,
                       const ModelConfig& config,
                       const ModelView& model);

/// Writes config.json and model.safetensors (f32) in Hugging Face's names and layout. `flat` is a
/// buffer laid out by `table`, the parameters of the model of `config`. The folder appears complete,
/// by rename, or not at all; folders above it are made. Called by one rank. A caller that must
/// survive a file-size limit ignores SIGXFSZ.
/// Errors: RequestError for an mlp or grouped heads in a gpt2, which transformers' models do not
/// have, and for a destination that exists and is not an empty folder; Error when writing fails.
void export_hugging_face(const ParameterTable& table,
                         const float* flat,
                         const ModelConfig& config,
                         const std::string& destination);

}  // namespace lockstep
