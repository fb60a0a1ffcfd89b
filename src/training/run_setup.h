// What a training run is made of, put together before its first step.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "data/batch_reader.h"
#include "data/dataset.h"
#include "nn/model.h"
#include "parallel/model_parts.h"
#include "parallel/pipeline_plan.h"
#include "parallel/virtual_layout.h"
#include "training/evaluator.h"
#include "training/rank_plan.h"
#include "training/trainer.h"

namespace lockstep {

/// Everything that is decided before memory is taken or a file written.
struct RunSetup {
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Dataset> validation;  ///< null: no evaluation
  std::optional<BatchPlan> plan;
  std::optional<CheckpointLocation> resume;  ///< equal on all ranks
  VirtualLayout layout;
  MeshShape mesh_shape;
  ModelConfig model_config;  ///< with everything filled in
  std::unique_ptr<ModelParts> parts;
  PipelinePlan pipeline;
  bool one_micro_batch = false;  ///< no virtual rank ever has more
  DType dtype = DType::kF32;
  PassMemory pass_memory;
  MemoryPlan memory;
  double device_peak = 0;  ///< of this rank, operations a second
};

/// Opens the data, finds the checkpoint to go on from, chooses the virtual layout, builds the model
/// on paper and checks that it fits. Collective. Errors: RequestError on all ranks alike.
RunSetup set_up_run(const TrainingConfig& config, Communicator& group, Queue& queue);

bool is_text_model(const ModelConfig& model);
/// What the model expects of its data.
DatasetShape shape_of(const ModelConfig& model);
/// Whether a run evaluates.
bool wants_validation(const TrainingConfig& config);
/// The vocabulary where the configuration leaves it open: the tokeniser's, else the data's, of which
/// every rank reads a part. Collective. Errors: RequestError on all ranks alike.
long find_vocabulary(const TrainingConfig& config, Communicator& group);

/// What decides bits on this machine beside the virtual layout: instruction set, libraries.
std::string machine_fingerprint(Queue& queue);

}  // namespace lockstep
