// Section [checkpoint] of the configuration.
#pragma once

#include <string>

namespace lockstep {

struct CheckpointConfig {
  long interval = 500;          // steps; 0: only at the end
  long keep = 3;                // the newest ones that stay
  std::string resume = "auto";  // auto | never | a checkpoint
  bool async_write = true;      // key "async": write while training goes on
};

}  // namespace lockstep
