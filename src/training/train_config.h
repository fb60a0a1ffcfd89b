// Sections [train], [run], [fault] and [log] of the configuration: the loop and what surrounds it.
#pragma once

#include <string>

namespace lockstep {

/// [train]
struct TrainConfig {
  std::string output_dir = "runs/default";
  long steps = 1000;            // 0 when the run is counted in epochs
  long epochs = 0;              // 0 when the run is counted in steps
  long global_batch_size = 32;  // samples an optimiser step, over all ranks
  long micro_batch_size = 4;    // samples a forward pass on one rank; the last one may be smaller
  std::string recompute = "none";  // none | selective | full
  long eval_interval = 100;        // steps; 0: never
  long eval_batches = 0;           // 0: the whole validation set, each sample once
};

/// [run]
struct RunConfig {
  std::string device = "auto";    // auto | cpu | cuda
  std::string precision = "f32";  // f32 | bf16 | fp8
  long threads = 0;               // a rank; 0: the cores it is bound to, shared fairly
  long seed = 1;
};

/// [fault]
struct FaultConfig {
  std::string nan = "stop";  // stop | skip
  long hang_timeout_seconds = 600;
};

/// [log]
struct LogConfig {
  long interval = 10;          // steps between two lines of metrics
  std::string level = "info";  // trace | debug | info | warn | error
  bool progress = true;        // a live line on a terminal
  bool tensorboard = true;
  std::string trace;  // "12:14" traces steps 12 and 13; "": none
};

}  // namespace lockstep
