#include "checkpoint/model_source.h"

#include <filesystem>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hugging_face.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_hugging_face(const std::string& source) {
  return fs::is_regular_file(fs::path(source) / "config.json");
}

void refuse_gguf(const std::string& source) {
  if (source.ends_with(".gguf")) {
    throw_request_error(
        "{}: GGUF files are not yet available; give a checkpoint or a Hugging Face "
        "folder",
        source);
  }
}

}  // namespace

ModelConfig read_source_config(const std::string& source) {
  refuse_gguf(source);
  return is_hugging_face(source) ? read_hugging_face_config(source)
                                 : locate_checkpoint(source).state.model;
}

void load_source_weights(const std::string& source,
                         const ModelConfig& config,
                         const ModelView& model) {
  refuse_gguf(source);
  if (is_hugging_face(source)) {
    load_hugging_face(source, config, model);
  } else {
    load_checkpoint(locate_checkpoint(source).path, model, true);
  }
}

}  // namespace lockstep
