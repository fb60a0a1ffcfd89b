// The optimiser: its state for a range of the flat buffers, and one update of it.
#pragma once

#include <string>
#include <vector>

#include "device/memory.h"
#include "device/queue.h"
#include "optim/optimizer_config.h"

namespace lockstep {

/// Elements [begin, end) of the flat buffer, with or without weight decay.
struct DecayRange {
  long begin = 0;
  long end = 0;
  bool decays = false;
};

/// SGD or AdamW over a flat buffer of parameters. State starts at zero.
class Optimizer {
 public:
  /// `ranges` cover the buffer of `flat_size` elements in order.
  Optimizer(const OptimizerConfig& config,
            std::vector<DecayRange> ranges,
            long flat_size,
            Queue& queue);

  /// What an update reads and writes.
  struct Update {
    float* parameters = nullptr;       ///< f32 master weights, flat_size() elements
    const float* gradients = nullptr;  ///< of the parameters, without the tied region
    void* compute_bf16 = nullptr;      ///< the weights layers compute with; null when f32
    double lr = 0;
    float gradient_scale = 1;  ///< by clipping
    long update_number = 1;    ///< 1 at the first update: bias correction
  };
  /// Updates all parameters, in one pass over memory a range.
  void update(Queue& queue, const Update& update) const;

  /// One state buffer: its name in checkpoints ("exp_avg", "exp_avg_sq", "momentum_buffer").
  struct State {
    std::string name;
    float* data = nullptr;
  };
  [[nodiscard]] const std::vector<State>& states() const { return states_; }
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }

 private:
  OptimizerConfig config_;
  long flat_size_;
  std::vector<DecayRange> ranges_;
  Memory memory_;
  std::vector<State> states_;
};

}  // namespace lockstep
