// Section [data] of the configuration: where samples come from.
#pragma once

#include <string>

namespace lockstep {

struct DataConfig {
  std::string kind = "tokens";  // tokens | images | synthetic
  std::string train;            // tokens: a file or a glob; images: a folder with the IDX files
  std::string validation;       // "": no evaluation
  long ignore_token = -1;       // a target with this id is not trained; -1: none
  std::string tokenizer;        // folder or file; "bytes": raw bytes; "": none
  bool shuffle = true;
};

}  // namespace lockstep
