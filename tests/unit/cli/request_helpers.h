// Calls the command line and the file reader as tests need them.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/request.h"
#include "cli/toml_reader.h"

namespace lockstep {

inline Request request_of(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"lockstep"};
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
  }
  return parse_request(static_cast<int>(argv.size()), argv.data());
}

/// The message with which `words` are refused; "" when they are accepted.
inline std::string refusal_of(const std::vector<std::string>& words) {
  try {
    request_of(words);
  } catch (const RequestError& error) {
    return error.what();
  }
  return {};
}

/// The message with which a file of this text, called run.toml, is refused; "" when accepted.
inline std::string refusal_of_toml(const std::string& text) {
  try {
    Configuration config;
    apply_toml(config, text, "run.toml");
  } catch (const RequestError& error) {
    return error.what();
  }
  return {};
}

}  // namespace lockstep
