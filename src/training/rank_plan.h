// What a rank of a run does and takes, from a description of the run: pure arithmetic, so that the
// trainer can refuse before it starts and `plan` can say it for ranks that do not exist.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "comm/transport.h"
#include "data/batch_reader.h"
#include "data/dataset.h"
#include "parallel/model_parts.h"
#include "parallel/pipeline_plan.h"
#include "parallel/virtual_layout.h"
#include "training/memory_plan.h"
#include "training/stages.h"
#include "training/trainer.h"

namespace lockstep {

/// A run as far as its memory depends on it.
struct RunOutline {
  TrainingConfig config;
  ModelConfig model;  ///< with everything filled in
  DType dtype = DType::kF32;
  DeviceKind device = DeviceKind::kCpu;  ///< of every rank
  Transport transport = Transport::kHost;
  MeshShape mesh;
  /// Virtual degrees: as the configuration or the checkpoint to go on from wants them (0: those of the
  /// mesh), and as they are.
  long wanted_virtual_data = 0;
  long wanted_virtual_tensor = 0;
  int virtual_data = 1;
  int virtual_tensor = 1;
  DatasetInfo data;
  std::optional<DatasetInfo> validation;  ///< none: no evaluation
  std::vector<long> host_of;              ///< of every rank; equal numbers share a host
};

/// run.precision
DType dtype_of(const RunConfig& run);

/// Who carries messages of ranks with such a device, as parallel.backend says.
Transport transport_of(const ParallelConfig& parallel, DeviceKind device);

/// Takes `mesh` and the virtual degrees that go with it.
void set_mesh(RunOutline& outline, const MeshShape& mesh);
/// Logs a warning where they are not those that are wanted.
void warn_of_other_degrees(const RunOutline& outline);

/// The parts of the outline's model on its mesh.
std::unique_ptr<ModelParts> make_parts(const RunOutline& outline);

struct RankPlan {
  VirtualLayout layout;
  PipelinePlan pipeline;
  bool one_micro_batch = false;  ///< no virtual rank ever has more in a step
  PassMemory passes;
  MemoryPlan memory;
};

/// Plans ranks of one run. What ranks have in common is worked out once: passes of a part of the model
/// once for all data ranks.
class RunPlanner {
 public:
  /// `outline` and `parts`, the parts of its model, outlive this.
  RunPlanner(const RunOutline& outline, const ModelParts& parts);

  /// Builds the run's own objects on the dry device and communicator, so that what is planned is what
  /// is taken, to the byte. Cost: the first rank of a part of the model runs its passes on the dry
  /// device; then O(buckets * data ranks).
  RankPlan plan(int rank);

 private:
  [[nodiscard]] VirtualLayout layout_of(int rank) const;
  [[nodiscard]] PassMemory measure(int rank) const;
  /// Micro-batches of a step, every number there can be.
  [[nodiscard]] std::set<long> micro_batch_totals() const;
  [[nodiscard]] PipelinePlan make_pipeline(int rank, const VirtualLayout& layout) const;
  [[nodiscard]] MemoryPlan memory_of(int rank, const RankPlan& plan) const;

  const RunOutline* outline_;
  const ModelParts* parts_;
  std::set<long> totals_;             ///< samples of a step, every number there can be
  std::map<int, PassMemory> passes_;  ///< by the rank's place in its model replica
};

/// Whether the state is read and written through WholeModel: where ranks have parts of it only, or a device
/// that is not the host.
bool needs_whole_model(const ModelParts& parts, DeviceKind device);

/// The steps of a run over `num_samples` samples.
BatchPlan make_batch_plan(const TrainConfig& train, long num_samples);

/// What a rank reads of every step, from step `first_step` (0: the first) on.
BatchReaderOptions reader_options(const TrainingConfig& config,
                                  const VirtualLayout& layout,
                                  long first_step);

/// Of a micro-batch of `samples`.
StageRunner::InputBytes input_bytes_of(const DatasetInfo& data, long samples);

/// How a run's passes are made.
Stages::Options stage_options(const TrainingConfig& config, DType dtype, const DatasetInfo& data);

}  // namespace lockstep
