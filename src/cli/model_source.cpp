#include "cli/model_source.h"

#include <type_traits>

#include "base/error.h"
#include "checkpoint/model_source.h"

namespace lockstep {
namespace {

// Takes `theirs` for `ours`, unless the user set the key to something else.
template <typename T>
void adopt(const Configuration& config, const char* key, T& ours, const T& theirs) {
  if (config.is_set(key) && ours != theirs) {
    if constexpr (std::is_same_v<T, std::vector<long>>) {
      throw_request_error("{}, but {} has [{}]: leave the key out",
                          describe_setting(config, key),
                          config.model.init_from,
                          fmt::join(theirs, ", "));
    } else {
      throw_request_error("{}, but {} has {}: leave the key out",
                          describe_setting(config, key),
                          config.model.init_from,
                          theirs);
    }
  }
  ours = theirs;
}

}  // namespace

void adopt_model_of_source(Configuration& config) {
  ModelConfig& ours = config.model;
  if (ours.init_from.empty()) {
    return;
  }
  const ModelConfig theirs = read_source_config(ours.init_from);
  adopt(config, "model.architecture", ours.architecture, theirs.architecture);
  adopt(config, "model.layer_sizes", ours.layer_sizes, theirs.layer_sizes);
  adopt(config, "model.num_layers", ours.num_layers, theirs.num_layers);
  adopt(config, "model.hidden_size", ours.hidden_size, theirs.hidden_size);
  adopt(config, "model.num_heads", ours.num_heads, theirs.num_heads);
  // 0 stands for the usual number, which the source spells out.
  const long kv_heads = theirs.num_kv_heads > 0 ? theirs.num_kv_heads : theirs.num_heads;
  if (ours.num_kv_heads == 0 && kv_heads == theirs.num_heads) {
    ours.num_kv_heads = theirs.num_kv_heads;
  }
  adopt(config, "model.num_kv_heads", ours.num_kv_heads, theirs.num_kv_heads);
  if (ours.ffn_hidden_size == 0) {
    ours.ffn_hidden_size = theirs.ffn_hidden_size;
  }
  adopt(config, "model.ffn_hidden_size", ours.ffn_hidden_size, theirs.ffn_hidden_size);
  adopt(config, "model.vocab_size", ours.vocab_size, theirs.vocab_size);
  adopt(config, "model.tie_embeddings", ours.tie_embeddings, theirs.tie_embeddings);
  adopt(config, "model.norm_epsilon", ours.norm_epsilon, theirs.norm_epsilon);
  adopt(config, "model.rope_theta", ours.rope_theta, theirs.rope_theta);
  if (config.is_set("model.seq_length") && ours.seq_length > theirs.seq_length) {
    throw_request_error("{}, but {} was made for at most {} positions",
                        describe_setting(config, "model.seq_length"),
                        ours.init_from,
                        theirs.seq_length);
  }
  if (!config.is_set("model.seq_length")) {
    ours.seq_length = theirs.seq_length;
  }
}

}  // namespace lockstep
