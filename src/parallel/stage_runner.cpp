#include "parallel/stage_runner.h"

#include "base/error.h"
#include "base/trace.h"

namespace lockstep {

StageRunner::StageRunner(std::vector<Model*> chunks,
                         const ModelState& state,
                         const StackBytes& bytes,
                         const Options& options,
                         Queue& queue)
    : state_(&state), options_(options), queue_(&queue) {
  LOCKSTEP_CHECK(options.links != nullptr || chunks.size() == 1);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const int slots = options.links == nullptr ? 1 : options.links->slots(static_cast<int>(i));
    Chunk chunk{chunks[i], {}};
    chunk.model->reserve_slots(slots);
    for (int slot = 0; slot < slots; ++slot) {
      const std::size_t shared = options.links == nullptr ? bytes.scratch : 0;
      chunk.slots.push_back(std::make_unique<ActivationStack>(queue, bytes.kept[i] + shared));
    }
    chunks_.push_back(std::move(chunk));
  }
  if (options.links != nullptr) {
    scratch_ = std::make_unique<ActivationStack>(queue, bytes.scratch);
  }
}

std::size_t StageRunner::stack_bytes() const {
  std::size_t sum = scratch_ ? scratch_->capacity() : 0;
  for (const Chunk& chunk : chunks_) {
    for (const auto& stack : chunk.slots) {
      sum += stack->capacity();
    }
  }
  return sum;
}

Pass StageRunner::make_pass(int chunk,
                            const PassBoundary& boundary,
                            const BackwardTarget& target,
                            Recompute recompute,
                            Access& access) {
  const Chunk& own = chunks_[static_cast<std::size_t>(chunk)];
  return {.queue = *queue_,
          .stack = *own.slots[static_cast<std::size_t>(boundary.slot)],
          .weights = options_.weights != nullptr ? options_.weights->weights() : state_->weights(),
          .gradients = target.gradients,
          .accumulate = target.accumulate,
          .gradients_ready = target.ready,
          .tensor = options_.tensor,
          .recompute = recompute,
          .scratch_stack = scratch_.get(),
          .boundary = boundary,
          .units = &access};
}

void StageRunner::Access::enter_weights(int unit) {
  if (weights_ != nullptr) {
    weights_->enter(unit);
  }
}

void StageRunner::Access::leave_weights(int unit) {
  if (weights_ != nullptr) {
    weights_->leave(unit);
  }
}

void StageRunner::begin_pass(int chunk, Model::PassKind kind) {
  if (options_.weights != nullptr) {
    options_.weights->begin_pass(chunk, kind);
  }
}

void StageRunner::skip(int chunk, Model::PassKind kind, FunctionRef<void(int unit)> on_unit) {
  if (options_.weights != nullptr) {
    options_.weights->pass_through(chunk, kind, on_unit);
  }
}

void StageRunner::weights_changed() {
  if (options_.weights != nullptr) {
    options_.weights->invalidate();
  }
}

void StageRunner::forward(int chunk,
                          long micro_batch,
                          const ModelInput& input,
                          FunctionRef<void()> progress) {
  PassBoundary boundary;
  if (options_.links != nullptr) {
    boundary = options_.links->forward_boundary(
        chunk, micro_batch, input.batch * options_.rows_per_sample);
  }
  {
    const TraceSpan span("forward", "pass");
    const auto poll = [&](long) { progress(); };
    const auto no_gradients = [](int) {};
    Access access(options_.weights, no_gradients);
    begin_pass(chunk, Model::PassKind::kForward);
    Pass pass =
        make_pass(chunk, boundary, no_target(poll, no_gradients), options_.recompute, access);
    pass.place = place_of(input);
    chunks_[static_cast<std::size_t>(chunk)].model->forward(pass, input);
  }
  if (options_.links != nullptr) {
    queue_->synchronize();
    options_.links->send_output(chunk, micro_batch);
  }
}

double StageRunner::run_backward(const BackwardKind& kind,
                                 int chunk,
                                 const PassBoundary& boundary,
                                 const ModelInput& input,
                                 float loss_scale,
                                 const BackwardTarget& target) {
  const TraceSpan span(kind.name, "pass");
  Access access(options_.weights, target.enter);
  begin_pass(chunk, kind.kind);
  Pass pass = make_pass(chunk, boundary, target, options_.recompute, access);
  pass.part = kind.part;
  pass.place = place_of(input);
  return chunks_[static_cast<std::size_t>(chunk)].model->backward(pass, input, loss_scale).sum;
}

double StageRunner::backward_and_send(const BackwardKind& kind,
                                      int chunk,
                                      long micro_batch,
                                      const ModelInput& input,
                                      float loss_scale,
                                      const BackwardTarget& target) {
  PassBoundary boundary;
  if (options_.links != nullptr) {
    boundary = options_.links->backward_boundary(
        chunk, micro_batch, input.batch * options_.rows_per_sample);
  }
  const double loss = run_backward(kind, chunk, boundary, input, loss_scale, target);
  if (options_.links != nullptr) {
    queue_->synchronize();
    options_.links->send_gradient(chunk, micro_batch);
  }
  return loss;
}

double StageRunner::backward(int chunk,
                             long micro_batch,
                             const ModelInput& input,
                             float loss_scale,
                             const BackwardTarget& target) {
  return backward_and_send({BackwardPart::kWhole, Model::PassKind::kBackward, "backward"},
                           chunk,
                           micro_batch,
                           input,
                           loss_scale,
                           target);
}

double StageRunner::backward_input(int chunk,
                                   long micro_batch,
                                   const ModelInput& input,
                                   float loss_scale,
                                   FunctionRef<void()> progress) {
  const auto poll = [&](long) { progress(); };
  const auto no_gradients = [](int) {};
  return backward_and_send(
      {BackwardPart::kInput, Model::PassKind::kBackwardInput, "backward input"},
      chunk,
      micro_batch,
      input,
      loss_scale,
      no_target(poll, no_gradients));
}

void StageRunner::backward_weight(int chunk,
                                  long micro_batch,
                                  const ModelInput& input,
                                  float loss_scale,
                                  const BackwardTarget& target) {
  run_backward({BackwardPart::kWeight, Model::PassKind::kBackwardWeight, "backward weight"},
               chunk,
               options_.links->weight_boundary(chunk, micro_batch),
               input,
               loss_scale,
               target);
}

void StageRunner::expect(int chunk, long micro_batch, bool is_forward) {
  if (options_.links == nullptr) {
    return;
  }
  if (is_forward) {
    options_.links->expect_input(chunk, micro_batch);
  } else {
    options_.links->expect_gradient(chunk, micro_batch);
  }
}

LossPart StageRunner::evaluate(long micro_batch, const ModelInput& input) {
  const auto nothing = [](long) {};
  const auto no_gradients = [](int) {};
  LossPart part;
  for (int chunk = 0; chunk < num_chunks(); ++chunk) {
    PassBoundary boundary;
    if (options_.links != nullptr) {
      boundary = options_.links->forward_boundary(
          chunk, micro_batch, input.batch * options_.rows_per_sample);
    }
    Access access(options_.weights, no_gradients);
    begin_pass(chunk, Model::PassKind::kEvaluate);
    Pass pass =
        make_pass(chunk, boundary, no_target(nothing, no_gradients), Recompute::kFull, access);
    part = chunks_[static_cast<std::size_t>(chunk)].model->evaluate(pass, input);
    if (options_.links != nullptr) {
      queue_->synchronize();
      options_.links->send_output(chunk, micro_batch);
    }
  }
  return part;
}

void StageRunner::finish() {
  if (options_.links != nullptr) {
    options_.links->finish();
  }
}

}  // namespace lockstep
