// Sections [optimizer] and [lr_schedule] of the configuration.
#pragma once

#include <string>

namespace lockstep {

/// [optimizer]
struct OptimizerConfig {
  std::string name = "adamw";  // sgd | adamw
  double lr = 1e-3;            // the peak; 0 is valid
  double momentum = 0.0;       // sgd
  double weight_decay = 0.1;   // on parameters with two or more dimensions
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double grad_clip = 1.0;  // 0: off
};

/// [lr_schedule]
struct LrScheduleConfig {
  std::string name = "cosine";  // constant | linear | cosine | wsd
  long warmup_steps = 50;
  double min_lr = 1e-4;
  long decay_steps = 0;  // wsd
};

}  // namespace lockstep
