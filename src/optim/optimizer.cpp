#include "optim/optimizer.h"

#include <cmath>
#include <utility>

#include "base/bfloat16.h"
#include "base/error.h"
#include "kernels/optimizer.h"

namespace lockstep {
namespace {

std::vector<std::string> state_names(const OptimizerConfig& config) {
  if (config.name == "adamw") {
    return {"exp_avg", "exp_avg_sq"};
  }
  LOCKSTEP_CHECK(config.name == "sgd");
  return config.momentum != 0.0 ? std::vector<std::string>{"momentum_buffer"}
                                : std::vector<std::string>{};
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config,
                     std::vector<DecayRange> ranges,
                     long flat_size,
                     Queue& queue)
    : config_(config), flat_size_(flat_size), ranges_(std::move(ranges)) {
  const std::vector<std::string> names = state_names(config);
  memory_ = queue.allocate(names.size() * static_cast<std::size_t>(flat_size_) * sizeof(float));
  for (std::size_t i = 0; i < names.size(); ++i) {
    states_.push_back({names[i], memory_.as<float>() + static_cast<long>(i) * flat_size_});
  }
}

void Optimizer::update(Queue& queue, const Update& update) const {
  const auto number = static_cast<double>(update.update_number);
  for (const DecayRange& range : ranges_) {
    const long begin = range.begin;
    const double weight_decay = range.decays ? config_.weight_decay : 0.0;
    void* compute = update.compute_bf16 == nullptr
                        ? nullptr
                        : static_cast<BFloat16*>(update.compute_bf16) + begin;
    if (config_.name == "adamw") {
      launch(queue,
             AdamW{.count = range.end - begin,
                   .parameter = update.parameters + begin,
                   .first_moment = states_[0].data + begin,
                   .second_moment = states_[1].data + begin,
                   .gradient = update.gradients + begin,
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
             Sgd{.count = range.end - begin,
                 .parameter = update.parameters + begin,
                 .velocity = states_.empty() ? nullptr : states_[0].data + begin,
                 .gradient = update.gradients + begin,
                 .compute_bf16 = compute,
                 .lr = update.lr,
                 .momentum = config_.momentum,
                 .weight_decay = weight_decay,
                 .gradient_scale = update.gradient_scale});
    }
  }
}

}  // namespace lockstep
