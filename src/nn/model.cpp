#include "nn/model.h"

#include "base/error.h"
#include "nn/mlp.h"
#include "nn/transformer.h"

namespace lockstep {

std::unique_ptr<Model> make_model(const ModelConfig& config, DType dtype, int virtual_tensor) {
  if (config.architecture == "mlp") {
    return make_mlp(config, dtype, virtual_tensor);
  }
  if (config.architecture == "gpt2" || config.architecture == "llama") {
    return make_transformer(config, dtype, virtual_tensor);
  }
  throw_request_error("model.architecture = \"{}\": valid are mlp, gpt2, llama",
                      config.architecture);
}

}  // namespace lockstep
