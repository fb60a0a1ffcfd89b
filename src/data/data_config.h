// The [data] section of the configuration.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct DataConfig {
  std::string kind = "tokens";     ///< tokens | images | synthetic
  std::string train;               ///< tokens: a file or a glob of shards; images: an IDX folder
  std::string validation;          ///< as `train`; "": no evaluation
  std::int64_t ignore_token = -1;  ///< a target with this id is not trained; -1: none
  std::string tokenizer;           ///< folder or file; "bytes": raw bytes; "": none
  bool shuffle = true;
};

}  // namespace lockstep
