// The effective configuration: every section, and where each value came from.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint_config.h"
#include "cli/command_config.h"
#include "data/data_config.h"
#include "nn/model_config.h"
#include "optim/optimizer_config.h"
#include "parallel/parallel_config.h"
#include "training/train_config.h"
#include "training/trainer.h"

namespace lockstep {

/// All sections. A default-constructed one holds the default of every key.
struct Configuration {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  RunConfig run;
  ParallelConfig parallel;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  CheckpointConfig checkpoint;
  FaultConfig fault;
  GenerateConfig generate;
  EvaluateConfig evaluate;
  QuantizeConfig quantize;
  PruneConfig prune;
  TokenizeConfig tokenize;
  LogConfig log;

  /// Of every key that the file or the command line sets: "run.toml:12: train.steps" or
  /// "--train.steps". The source of highest precedence is kept.
  std::map<std::string, std::string, std::less<>> origins;

  /// Whether the user set `key` ("model.seq_length"), even to its default value.
  [[nodiscard]] bool is_set(std::string_view key) const { return origins.contains(key); }
};

/// The beginning of a message about a value: "run.toml:12: train.steps = 5", "--train.steps = 5",
/// or "train.steps = 1000 (default)". `key` must be in the key table.
std::string describe_setting(const Configuration& config, std::string_view key);

/// What training reads.
TrainingConfig training_config(const Configuration& config);

/// The complete configuration as TOML, by section, in the order of the key table. Reading it gives
/// the same values: numbers are written with the fewest digits that identify them.
std::string to_toml(const Configuration& config);

}  // namespace lockstep
