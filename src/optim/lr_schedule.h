// Learning rates: a pure function of the step, so that stopping and resuming cannot change it.
#pragma once

#include "optim/optimizer_config.h"

namespace lockstep {

/// The learning rate of step `step` (counted from 0) of `total_steps`.
/// Warm-up: lr (t + 1) / warmup_steps. After it, with s = (t - warmup) / (total - warmup):
///   constant: lr;  linear: lr + (min_lr - lr) s;  cosine: min_lr + (lr - min_lr)(1 + cos(pi s))/2;
///   wsd: lr, and over the last decay_steps steps linearly to min_lr.
double learning_rate(const OptimizerConfig& optimizer,
                     const LrScheduleConfig& schedule,
                     long step,
                     long total_steps);

}  // namespace lockstep
