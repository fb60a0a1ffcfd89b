// Training: from a configuration to a trained model, on every rank alike.
#pragma once

#include <string>

#include "checkpoint/checkpoint_config.h"
#include "comm/communicator.h"
#include "data/data_config.h"
#include "device/queue.h"
#include "nn/model_config.h"
#include "optim/optimizer_config.h"
#include "parallel/parallel_config.h"
#include "training/train_config.h"

namespace lockstep {

/// The sections of the configuration that training reads.
struct TrainingConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  RunConfig run;
  ParallelConfig parallel;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  CheckpointConfig checkpoint;
  FaultConfig fault;
  LogConfig log;
  /// The complete effective configuration, written to <output_dir>/config.toml.
  std::string text;
};

/// How a training ended.
enum class TrainingEnd { kFinished, kStopped };

/// Trains, going on from the newest complete checkpoint of train.output_dir unless the
/// configuration says otherwise. Collective over `group`, whose ranks have `queue` for their work.
/// Errors: RequestError before anything was written or started; Error while running.
/// kStopped: a signal was answered with a checkpoint.
TrainingEnd train(const TrainingConfig& config, Communicator& group, Queue& queue);

}  // namespace lockstep
