// What a rank runs passes with: groups, messages and stacks, put together from a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "parallel/mesh.h"
#include "parallel/model_parts.h"
#include "parallel/pipeline_plan.h"
#include "parallel/stage_runner.h"
#include "training/memory_plan.h"

namespace lockstep {

/// Tensor group, pipeline links and runner of a rank. Everything but the state is taken here.
class Stages {
 public:
  struct Options {
    DType dtype = DType::kF32;
    Recompute recompute = Recompute::kNone;
    long micro_batch_size = 1;
    StageRunner::InputBytes inputs = {};  ///< of a whole micro-batch
    std::uint64_t seed = 0;               ///< of what passes of a training draw
  };

  /// Collective over the tensor group. `parts` and `mesh` outlive this.
  Stages(const ModelConfig& model,
         const ModelParts& parts,
         Mesh& mesh,
         const PassMemory& memory,
         const PipelinePlan& pipeline,
         const ModelState& state,
         const Options& options,
         Queue& queue);

  [[nodiscard]] StageRunner& runner() { return *runner_; }
  [[nodiscard]] std::size_t stack_bytes() const { return runner_->stack_bytes(); }
  /// Slots for weights that ranks share, taken from a group of the mesh.
  [[nodiscard]] std::size_t weight_bytes() const { return weights_ ? weights_->bytes() : 0; }
  /// Tables and inputs on a device that is not the host, and results for the host.
  [[nodiscard]] std::size_t table_bytes() const { return table_bytes_ + runner_->input_bytes(); }
  [[nodiscard]] std::size_t result_bytes() const { return runner_->result_bytes(); }
  [[nodiscard]] std::size_t link_bytes() const { return links_ ? links_->bytes() : 0; }

 private:
  std::size_t table_bytes_ = 0;
  std::optional<TensorGroup> tensor_;
  std::optional<PipelineLinks> links_;
  std::optional<WeightSlots> weights_;
  std::optional<StageRunner> runner_;
};

/// How passes of this model on this mesh are measured.
PassMeasure pass_measure(const ModelConfig& model,
                         const MeshShape& mesh,
                         const ModelChunks& chunks,
                         DeviceKind device,
                         DType dtype,
                         PassUse kind,
                         std::vector<long> batch_sizes);

}  // namespace lockstep
