#include "optim/optimizer.h"

#include <cmath>
#include <utility>

#include "base/bfloat16.h"
#include "base/error.h"
#include "kernels/optimizer.h"

namespace lockstep {
std::vector<std::string> optimizer_state_names(const OptimizerConfig& config) {
  if (config.name == "adamw") {
    return {"exp_avg", "exp_avg_sq"};
  }
  LOCKSTEP_CHECK(config.name == "sgd");
  return config.momentum != 0.0 ? std::vector<std::string>{"momentum_buffer"}
                                : std::vector<std::string>{};
}

Optimizer::Optimizer(const OptimizerConfig& config,
                     std::vector<OptimizerRange> ranges,
                     long state_size,
                     Queue& queue)
    : config_(config), ranges_(std::move(ranges)) {
  const std::vector<std::string> names = optimizer_state_names(config);
  memory_ = queue.allocate(names.size() * static_cast<std::size_t>(state_size) * sizeof(float));
  for (std::size_t i = 0; i < names.size(); ++i) {
    states_.push_back({names[i], memory_.as<float>() + static_cast<long>(i) * state_size});
  }
}

void Optimizer::update(Queue& queue, const Update& update) const {
  const auto number = static_cast<double>(update.update_number);
  for (const OptimizerRange& range : ranges_) {
    const double weight_decay = range.decays ? config_.weight_decay : 0.0;
    void* compute = update.compute_bf16 == nullptr
                        ? nullptr
                        : static_cast<BFloat16*>(update.compute_bf16) + range.compute;
    if (config_.name == "adamw") {
      launch(queue,
             AdamW{.count = range.count,
                   .parameter = update.master + range.master,
                   .first_moment = states_[0].data + range.state,
                   .second_moment = states_[1].data + range.state,
                   .gradient = update.gradients + range.gradient,
                   .compute_bf16 = compute,
                   .lr = update.lr,
                   .beta1 = config_.beta1,
                   .beta2 = config_.beta2,
                   .epsilon = config_.epsilon,
                   .weight_decay = weight_decay,
                   .correction1 = 1.0 - std::pow(config_.beta1, number),
                   .correction2 = 1.0 - std::pow(config_.beta2, number),
                   .gradient_scale = update.gradient_scale});
    } else {
      launch(queue,
             Sgd{.count = range.count,
                 .parameter = update.master + range.master,
                 .velocity = states_.empty() ? nullptr : states_[0].data + range.state,
                 .gradient = update.gradients + range.gradient,
                 .compute_bf16 = compute,
                 .lr = update.lr,
                 .momentum = config_.momentum,
                 .weight_decay = weight_decay,
                 .gradient_scale = update.gradient_scale});
    }
  }
}

}  // namespace lockstep
