#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lockstep {

double learning_rate(const OptimizerConfig& optimizer,
                     const LrScheduleConfig& schedule,
                     long step,
                     long total_steps) {
  const double lr = optimizer.lr;
  if (step < schedule.warmup_steps) {
    return lr * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.name == "constant") {
    return lr;
  }
  const double min_lr = schedule.min_lr;
  if (schedule.name == "wsd") {
    const long left = total_steps - step;
    return left > schedule.decay_steps ? lr
                                       : min_lr + (lr - min_lr) * static_cast<double>(left) /
                                                      static_cast<double>(schedule.decay_steps);
  }
  const auto length = static_cast<double>(std::max(1L, total_steps - schedule.warmup_steps));
  const double progress = static_cast<double>(step - schedule.warmup_steps) / length;
  if (schedule.name == "linear") {
    return lr + (min_lr - lr) * progress;
  }
  LOCKSTEP_CHECK(schedule.name == "cosine");
  return min_lr + (lr - min_lr) * (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
}

}  // namespace lockstep
