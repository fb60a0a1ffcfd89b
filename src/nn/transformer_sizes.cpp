#include "nn/transformer_sizes.h"

#include "base/error.h"

namespace lockstep {

HeadSplit head_split_of(const ModelConfig& config, int num_blocks) {
  return {.heads = config.num_heads,
          .kv_heads = config.num_kv_heads > 0 ? config.num_kv_heads : config.num_heads,
          .head_dim = config.hidden_size / config.num_heads,
          .num_blocks = num_blocks};
}

void check_transformer_sizes(const ModelConfig& config, const TensorSplit& split) {
  if (config.num_heads <= 0 || config.hidden_size % config.num_heads != 0) {
    throw_request_error("model.hidden_size = {} is not a multiple of model.num_heads = {}",
                        config.hidden_size,
                        config.num_heads);
  }
  if (config.vocab_size <= 0) {
    throw_request_error(
        "model.vocab_size is not known: set it, or data.tokenizer, from which it is taken");
  }
  if (config.architecture == "llama" && config.dropout > 0) {
    throw_request_error("model.dropout = {}: llama has no dropout; valid: 0", config.dropout);
  }
  const long head_dim = config.hidden_size / config.num_heads;
  if (config.architecture == "llama" && head_dim % 2 != 0) {
    throw_request_error(
        "model.hidden_size / model.num_heads = {} is odd: rotary embeddings turn pairs", head_dim);
  }
  if (config.num_kv_heads > 0 && config.num_heads % config.num_kv_heads != 0) {
    throw_request_error("model.num_heads = {} is not a multiple of model.num_kv_heads = {}",
                        config.num_heads,
                        config.num_kv_heads);
  }
  if (!head_split_of(config, split.num_blocks).fits(split.ranks)) {
    throw_request_error(
        "parallel.virtual_tensor = {} blocks on parallel.tensor = {} ranks, model.num_kv_heads = "
        "{}: blocks that share a kv head would lie on parts of ranks",
        split.num_blocks,
        split.ranks,
        config.num_kv_heads);
  }
}

}  // namespace lockstep
