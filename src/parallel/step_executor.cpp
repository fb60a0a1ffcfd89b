#include "parallel/step_executor.h"

#include <cmath>
#include <limits>

#include "base/aligned_tree.h"
#include "base/trace.h"

namespace lockstep {
namespace {

constexpr double kClipEpsilon = 1e-6;  // PyTorch's clip_grad_norm_

}  // namespace

ModelInput model_input(const MicroBatch& batch) {
  return {batch.num_samples, batch.tokens, batch.features, batch.targets};
}

StepExecutor::StepExecutor(Model& model,
                           ModelState& state,
                           ActivationStack& stack,
                           GradientReducer& reducer,
                           StepExchange& exchange,
                           const VirtualLayout& layout,
                           Queue& queue)
    : model_(&model),
      state_(&state),
      stack_(&stack),
      reducer_(&reducer),
      exchange_(&exchange),
      layout_(layout),
      queue_(&queue),
      leaf_losses_(static_cast<std::size_t>(layout.owned())) {}

double StepExecutor::run_leaf(const StepBatch& batch, int owned_index, float loss_scale) {
  const IndexRange range =
      layout_.micro_batches(batch.num_micro_batches, layout_.first_owned() + owned_index);
  reducer_->begin_leaf(owned_index);
  double loss = 0;
  for (long index = range.begin; index < range.end; ++index) {
    const bool last = index + 1 == range.end;
    const auto ready = [&](long first) {
      if (last) {
        reducer_->ready(first);
      } else {
        reducer_->poll();
      }
    };
    Pass pass{.queue = *queue_,
              .stack = *stack_,
              .weights = state_->weights(),
              .gradients = reducer_->gradients(),
              .accumulate = index > range.begin,
              .gradients_ready = ready};
    const auto first_own = static_cast<std::size_t>(index - batch.micro_batches.front().index);
    const ModelInput input = model_input(batch.micro_batches[first_own]);
    {
      const TraceSpan span("forward", "pass");
      model_->forward(pass, input);
    }
    const TraceSpan span("backward", "pass");
    loss += model_->backward(pass, input, loss_scale).sum;
  }
  reducer_->end_leaf(range.size() == 0);
  return loss;
}

StepResult StepExecutor::run(const StepBatch& batch, const Settings& settings) {
  const auto targets = static_cast<double>(batch.num_targets);
  const auto loss_scale =
      batch.num_targets > 0 ? static_cast<float>(1.0 / targets) : 0.0F;  // masked batch: nothing
  for (int owned = 0; owned < layout_.owned(); ++owned) {
    leaf_losses_[static_cast<std::size_t>(owned)] = run_leaf(batch, owned, loss_scale);
  }
  reducer_->finish();
  const double own_loss = tree_sum_in_place(std::span<double>(leaf_losses_));
  const StepExchange::Result sums =
      exchange_->exchange(reducer_->result(), own_loss, settings.flags);

  StepResult result;
  result.flags = sums.flags;
  result.loss =
      batch.num_targets > 0 ? sums.loss / targets : std::numeric_limits<double>::quiet_NaN();
  result.grad_norm = std::sqrt(sums.squared_norm);
  if (batch.num_targets == 0) {
    return result;
  }
  result.finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (!result.finite) {
    return result;
  }
  float gradient_scale = 1.0F;
  if (settings.grad_clip > 0 && result.grad_norm > settings.grad_clip) {
    gradient_scale = static_cast<float>(settings.grad_clip / (result.grad_norm + kClipEpsilon));
  }
  const TraceSpan span("update", "step");
  state_->update(reducer_->result(), settings.lr, gradient_scale, settings.update_number);
  result.updated = true;
  return result;
}

}  // namespace lockstep
