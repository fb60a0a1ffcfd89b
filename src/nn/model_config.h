// Section [model] of the configuration: which network, and how large.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct ModelConfig {
  std::string architecture = "gpt2";       // mlp | gpt2 | llama
  std::vector<long> layer_sizes{784, 10};  // mlp only: inputs, hidden layers, classes
  long num_layers = 6;
  long hidden_size = 384;
  long num_heads = 6;
  long num_kv_heads = 0;     // 0: as num_heads
  long ffn_hidden_size = 0;  // 0: 4 x hidden (gpt2), 8/3 x hidden rounded up to 64 (llama)
  long seq_length = 256;
  long vocab_size = 0;  // 0: from the data or the tokeniser
  bool tie_embeddings = true;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  double dropout = 0.0;
  std::string init_from;  // checkpoint, Hugging Face folder or .gguf; "": random
};

}  // namespace lockstep
