// A small trained model for tests of checkpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "device/cpu/cpu_queue.h"
#include "nn/model.h"
#include "parallel/model_state.h"
#include "support/test_matrix.h"
#include "unit/nn/tiny_model.h"

namespace lockstep::test {

class CheckpointModel {
 public:
  explicit CheckpointModel(int blocks,
                           const ModelConfig& config = tiny_config("llama"),
                           const std::string& optimizer = "adamw")
      : config_(config),
        model_(make_model(config, DType::kF32, blocks)),
        state_(model_->parameters(), DType::kF32, {.name = optimizer}, queue_) {
    state_.initialise(7);
  }

  /// Moves weights and optimiser state; equal for equal numbers, whatever the blocks.
  void update(long number) {
    std::vector<float> gradients(state_.master_bytes() / sizeof(float), 0.0F);
    for (const Parameter& parameter : state_.table().parameters()) {
      const std::vector<float> values =
          test_vector(parameter.num_elements(), site_of(parameter.name.c_str()));
      copy_from_canonical(parameter, values.data(), gradients.data());
    }
    state_.update(gradients.data(), 0.01, 1.0F, number);
  }

  [[nodiscard]] RunState run_state(long step) const {
    RunState run;
    run.step = step;
    run.samples = 6 * step;
    run.tokens = 42 * step;
    run.seed = 7;
    run.virtual_data = 4;
    run.virtual_tensor = 2;
    run.fingerprint = "a machine";
    run.model = config_;
    return run;
  }
  [[nodiscard]] ModelState& state() { return state_; }
  [[nodiscard]] Queue& queue() { return queue_; }
  [[nodiscard]] std::uint64_t hash() const { return hash_of_model(state_.view()); }

 private:
  ModelConfig config_;
  CpuQueue queue_{1};
  std::unique_ptr<Model> model_;
  ModelState state_;
};

}  // namespace lockstep::test
