// Sections of single commands: [generate], [evaluate], [quantize], [prune] and [tokenize].
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// [generate]
struct GenerateConfig {
  std::string prompt;
  std::string prompts;  // a file of prompts; "-": standard input
  bool chat = false;
  long max_tokens = 128;
  double temperature = 1.0;  // 0: greedy
  long top_k = 0;            // 0: off
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  long num_samples = 1;
  long max_batch = 16;  // sequences in flight
  bool json = false;
};

/// [evaluate]
struct EvaluateConfig {
  std::string data;  // token file, folder with IDX files, or multiple-choice JSON lines
  long stride = 0;   // sliding window; 0: the context
  bool json = false;
};

/// [quantize]
struct QuantizeConfig {
  std::string method = "rtn";  // rtn | gptq
  long bits = 8;               // 8 | 4
  long group_size = 0;         // 0: 8 bits a row, 4 bits 128
  bool symmetric = true;
  std::string calibration;  // token file
  std::string output;
};

/// [prune]
struct PruneConfig {
  std::string method = "magnitude";      // magnitude | wanda | structured
  std::string pattern = "unstructured";  // unstructured | 2:4
  double sparsity = 0.5;
  std::string scope = "layer";  // layer | global
  std::string calibration;      // token file
  std::string output;
};

/// [tokenize]
struct TokenizeConfig {
  std::string input;        // a glob of text files
  std::string output;       // the token file
  double validation = 0.0;  // fraction that goes to a second file beside it; 0: none
};

}  // namespace lockstep
