#include "nn/model.h"

#include "base/error.h"
#include "nn/mlp.h"
#include "nn/transformer.h"

namespace lockstep {

std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, TensorSplit split) {
  if (config.architecture == "mlp") {
    return make_mlp(config, dtype, split);
  }
  if (config.architecture == "gpt2" || config.architecture == "llama") {
    return make_transformer(config, dtype, split);
  }
  throw_request_error("model.architecture = \"{}\": valid are mlp, gpt2, llama",
                      config.architecture);
}

std::vector<std::unique_ptr<Model>> make_model_parts(const ModelConfig& config,
                                                     DType dtype,
                                                     TensorSplit split,
                                                     const std::vector<ModelPart>& parts) {
  const auto table = std::make_shared<ParameterTable>(split);
  std::vector<std::unique_ptr<Model>> models;
  models.reserve(parts.size());
  for (const ModelPart& part : parts) {
    models.push_back(make_transformer_part(config, dtype, part, table));
  }
  return models;
}

}  // namespace lockstep
