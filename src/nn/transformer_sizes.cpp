#include "nn/transformer_sizes.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

constexpr long kLogitElements = 1L << 24U;  // of one chunk: 64 MiB in f32

}  // namespace

HeadSplit head_split_of(const ModelConfig& config, int num_blocks) {
  return {.heads = config.num_heads,
          .kv_heads = config.num_kv_heads > 0 ? config.num_kv_heads : config.num_heads,
          .head_dim = config.hidden_size / config.num_heads,
          .num_blocks = num_blocks};
}

long ffn_size_of(const ModelConfig& config) {
  if (config.ffn_hidden_size > 0) {
    return config.ffn_hidden_size;
  }
  return config.architecture == "llama" ? round_up(8 * config.hidden_size / 3, 64L)
                                        : 4 * config.hidden_size;
}

long logit_chunk_rows(long rows, long padded_vocab) {
  const long chunk = std::clamp(kLogitElements / padded_vocab / 64 * 64, 64L, std::max(64L, rows));
  return std::min(chunk, rows);
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
