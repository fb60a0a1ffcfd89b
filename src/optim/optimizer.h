// The optimiser: its state for parts of the flat buffers, and one update of them.
#pragma once

#include <string>
#include <vector>

#include "device/memory.h"
#include "device/queue.h"
#include "optim/optimizer_config.h"

namespace lockstep {

/// `count` neighbouring elements that are updated: where they stand in the optimiser's own buffers, and
/// in those it is given.
struct OptimizerRange {
  long state = 0;     ///< first element in each state buffer
  long master = 0;    ///< in the f32 weights
  long gradient = 0;  ///< in the gradients
  long compute = 0;   ///< in the bf16 weights
  long count = 0;
  bool decays = false;  ///< with weight decay
};

/// SGD or AdamW over some ranges. State starts at zero.
class Optimizer {
 public:
  /// State buffers have `state_size` elements.
  Optimizer(const OptimizerConfig& config,
            std::vector<OptimizerRange> ranges,
            long state_size,
            Queue& queue);

  /// What an update reads and writes.
  struct Update {
    float* master = nullptr;  ///< f32 weights
    const float* gradients = nullptr;
    void* compute_bf16 = nullptr;  ///< the weights layers compute with; null when f32
    double lr = 0;
    float gradient_scale = 1;  ///< by clipping
    long update_number = 1;    ///< 1 at the first update: bias correction
  };
  /// Updates all ranges, in one pass over memory each.
  void update(Queue& queue, const Update& update) const;

  /// One state buffer: its name in checkpoints ("exp_avg", "exp_avg_sq", "momentum_buffer").
  struct State {
    std::string name;
    float* data = nullptr;
  };
  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }
  [[nodiscard]] const std::vector<OptimizerRange>& ranges() const { return ranges_; }

 private:
  OptimizerConfig config_;
  std::vector<OptimizerRange> ranges_;
  Memory memory_;
  std::vector<State> states_;
};

/// Names of the state buffers that an optimiser of this configuration has.
std::vector<std::string> optimizer_state_names(const OptimizerConfig& config);

}  // namespace lockstep
