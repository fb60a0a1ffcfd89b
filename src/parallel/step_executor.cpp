#include "parallel/step_executor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/aligned_tree.h"
#include "base/error.h"
#include "base/trace.h"

namespace lockstep {
namespace {

constexpr double kClipEpsilon = 1e-6;  // PyTorch's clip_grad_norm_

}  // namespace

ModelInput model_input(const MicroBatch& batch, long step) {
  return {.batch = batch.num_samples,
          .tokens = batch.tokens,
          .features = batch.features,
          .targets = batch.targets,
          .step = step,
          .first_sample = batch.first_sample};
}

StepExecutor::StepExecutor(StageRunner& runner,
                           ModelState& state,
                           GradientReducer& reducer,
                           SharedGradient& shared,
                           StepExchange& exchange,
                           const VirtualLayout& layout,
                           bool by_rounds,
                           ScheduleByCount schedules,
                           Queue& queue)
    : runner_(&runner),
      state_(&state),
      reducer_(&reducer),
      shared_(&shared),
      exchange_(&exchange),
      layout_(layout),
      by_rounds_(by_rounds),
      schedules_(std::move(schedules)),
      leaves_(static_cast<std::size_t>(layout.owned())),
      next_leaf_(static_cast<std::size_t>(runner.num_chunks())),
      losses_(queue.allocate_for_host(loss_bytes(schedules_))),
      leaf_losses_(static_cast<std::size_t>(layout.owned())),
      computes_(queue.kind() != DeviceKind::kDry) {}

std::size_t StepExecutor::loss_bytes(const ScheduleByCount& schedules) {
  long count = 0;
  for (const auto& [micro_batches, entries] : schedules) {
    for (const ScheduleEntry& entry : entries) {
      count = std::max(count, entry.micro_batch + 1);
    }
  }
  return static_cast<std::size_t>(count) * sizeof(double);
}

void StepExecutor::find_leaves(const StepBatch& batch) {
  const long first = layout_.micro_batches(batch.num_micro_batches, layout_.first_owned()).begin;
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    const IndexRange range = layout_.micro_batches(batch.num_micro_batches,
                                                   layout_.first_owned() + static_cast<int>(leaf));
    leaves_[leaf] = {range.begin - first, range.end - first};
  }
  std::fill(next_leaf_.begin(), next_leaf_.end(), 0);
}

// Virtual ranks before `end` that have no micro-batch count as zeros.
void StepExecutor::skip_empty_leaves(int chunk, int end) {
  int& next = next_leaf_[static_cast<std::size_t>(chunk)];
  for (; next < end; ++next) {
    reducer_->begin_leaf(chunk, next);
    reducer_->end_leaf(chunk, true);
  }
}

StepExecutor::Place StepExecutor::place_of(long number) const {
  if (by_rounds_) {
    const auto leaves = static_cast<long>(leaves_.size());
    const auto leaf = static_cast<int>(number % leaves);
    const IndexRange range = leaves_[static_cast<std::size_t>(leaf)];
    const long index = range.begin + number / leaves;
    return {leaf, index < range.end ? index : -1};
  }
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    if (number < leaves_[leaf].end) {
      return {static_cast<int>(leaf), number};
    }
  }
  return {static_cast<int>(leaves_.size()), -1};
}

StageRunner::BackwardSource StepExecutor::source_at(const StepBatch& batch,
                                                    const Place& place,
                                                    float loss_scale) const {
  return {.input = input_at(batch, place),
          .loss_scale = loss_scale,
          .loss = losses_.as<double>() + place.index};
}

ModelInput StepExecutor::input_at(const StepBatch& batch, const Place& place) {
  return model_input(batch.micro_batches[static_cast<std::size_t>(place.index)], batch.step);
}

void StepExecutor::run_forward(const StepBatch& batch, const ScheduleEntry& entry) {
  const Place place = place_of(entry.micro_batch);
  if (place.index < 0) {
    const auto nothing = [](int) {};
    runner_->skip(entry.chunk, Model::PassKind::kForward, nothing);
    return;
  }
  const auto poll = [&] { reducer_->poll(); };
  runner_->forward(entry.chunk, entry.micro_batch, input_at(batch, place), poll);
}

void StepExecutor::run_backward_input(const StepBatch& batch,
                                      const ScheduleEntry& entry,
                                      float loss_scale) {
  const Place place = place_of(entry.micro_batch);
  if (place.index < 0) {
    const auto nothing = [](int) {};
    runner_->skip(entry.chunk, Model::PassKind::kBackwardInput, nothing);
    return;
  }
  const auto poll = [&] { reducer_->poll(); };
  runner_->backward_input(
      entry.chunk, entry.micro_batch, source_at(batch, place, loss_scale), poll);
}

// A pass that finds gradients of parameters, and for which this rank has no micro-batch.
void StepExecutor::skip_backward(const ScheduleEntry& entry, const Place& place) {
  const int chunk = entry.chunk;
  if (by_rounds_) {
    reducer_->begin_leaf(chunk, place.leaf);
  }
  const auto zeros = [&](int unit) {
    if (by_rounds_) {
      reducer_->contribute_zeros(chunk, unit);
    }
  };
  runner_->skip(chunk,
                entry.pass == SchedulePass::kBackward ? Model::PassKind::kBackward
                                                      : Model::PassKind::kBackwardWeight,
                zeros);
  if (by_rounds_) {
    reducer_->end_leaf(chunk, true);
    next_leaf_[static_cast<std::size_t>(chunk)] = place.leaf + 1;
  }
}

// A whole backward pass, or its weight part.
void StepExecutor::run_backward(const StepBatch& batch,
                                const ScheduleEntry& entry,
                                float loss_scale) {
  const Place place = place_of(entry.micro_batch);
  if (place.index < 0) {
    skip_backward(entry, place);
    return;
  }
  const int chunk = entry.chunk;
  const IndexRange range = leaves_[static_cast<std::size_t>(place.leaf)];
  const bool first = by_rounds_ || place.index == range.begin;
  const bool last = by_rounds_ || place.index + 1 == range.end;
  if (first) {
    if (!by_rounds_) {
      skip_empty_leaves(chunk, place.leaf);
    }
    reducer_->begin_leaf(chunk, place.leaf);
    next_leaf_[static_cast<std::size_t>(chunk)] = place.leaf + 1;
  }
  const auto ready = [&](long element) {
    if (last) {
      reducer_->ready(chunk, element);
    } else {
      reducer_->poll();
    }
  };
  const auto enter = [&](int unit) { reducer_->enter(unit); };
  const StageRunner::BackwardTarget target{.gradients = reducer_->gradients(chunk),
                                           .accumulate = !first,
                                           .ready = ready,
                                           .enter = enter};
  StageRunner::BackwardSource source = source_at(batch, place, loss_scale);
  if (entry.pass == SchedulePass::kBackward) {
    runner_->backward(chunk, entry.micro_batch, source, target);
  } else {
    source.loss = nullptr;  // the input part has found it
    runner_->backward_weight(chunk, entry.micro_batch, source, target);
  }
  if (last) {
    reducer_->end_leaf(chunk, false);
  }
}

// Messages for the next passes come in while the present one computes.
void StepExecutor::expect_next(const std::vector<ScheduleEntry>& entries, std::size_t current) {
  constexpr std::size_t kAhead = 2;
  for (std::size_t i = current; i < std::min(current + 1 + kAhead, entries.size()); ++i) {
    if (entries[i].pass != SchedulePass::kBackwardWeight &&
        place_of(entries[i].micro_batch).index >= 0) {
      const bool is_forward = entries[i].pass == SchedulePass::kForward;
      runner_->expect(entries[i].chunk, entries[i].micro_batch, is_forward);
    }
  }
}

void StepExecutor::run_schedule(const StepBatch& batch, float loss_scale) {
  const std::vector<ScheduleEntry>& entries = schedules_.at(batch.num_micro_batches);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    process_trace().set_place({static_cast<std::int16_t>(entries[i].chunk),
                               static_cast<std::int32_t>(entries[i].micro_batch)});
    expect_next(entries, i);
    switch (entries[i].pass) {
      case SchedulePass::kForward:
        run_forward(batch, entries[i]);
        break;
      case SchedulePass::kBackwardInput:
        run_backward_input(batch, entries[i], loss_scale);
        break;
      case SchedulePass::kBackward:
      case SchedulePass::kBackwardWeight:
        run_backward(batch, entries[i], loss_scale);
        break;
    }
  }
}

// Once the queue is synchronised.
double StepExecutor::own_loss() {
  if (!computes_) {
    return 0;
  }
  for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    leaf_losses_[leaf] = 0;
    for (long index = leaves_[leaf].begin; index < leaves_[leaf].end; ++index) {
      leaf_losses_[leaf] += losses_.as<double>()[index];
    }
  }
  return tree_sum_in_place(std::span<double>(leaf_losses_));
}

StepResult StepExecutor::run(const StepBatch& batch, const Settings& settings) {
  const auto targets = static_cast<double>(batch.num_targets);
  const auto loss_scale =
      batch.num_targets > 0 ? static_cast<float>(1.0 / targets) : 0.0F;  // masked batch: nothing
  find_leaves(batch);
  run_schedule(batch, loss_scale);
  process_trace().set_place({});
  for (int chunk = runner_->num_chunks(); chunk-- > 0;) {
    skip_empty_leaves(chunk, layout_.owned());
  }
  runner_->finish();
  reducer_->finish();
  shared_->add(reducer_->result());
  const auto loss = [this] { return own_loss(); };
  const StepExchange::Result sums = exchange_->exchange(reducer_->result(), loss, settings.flags);

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
  runner_->weights_changed();
  result.updated = true;
  return result;
}

}  // namespace lockstep
