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
  if (queue.planned_kind() != DeviceKind::kCpu) {
    inputs_ = queue.allocate(options.inputs.inputs);
    targets_ = queue.allocate(options.inputs.targets);
    predictions_ = queue.allocate_for_host(options.inputs.predictions);
  }
  loss_ = queue.allocate_for_host(sizeof(double));
}

std::byte* StageRunner::upload(const Memory& memory, const void* from, std::size_t bytes) {
  if (from == nullptr) {
    return nullptr;
  }
  LOCKSTEP_CHECK(bytes <= memory.bytes());
  queue_->copy_to_device(memory.data(), from, bytes);
  return memory.data();
}

// In order with the passes before, so that one copy is enough.
ModelInput StageRunner::on_device(const ModelInput& input) {
  if (!inputs_.data()) {
    return input;
  }
  const auto part = [&](std::size_t whole) {
    return whole / static_cast<std::size_t>(options_.micro_batch_size) *
           static_cast<std::size_t>(input.batch);
  };
  ModelInput device = input;
  const bool has_tokens = input.tokens != nullptr;
  const void* const values = has_tokens ? static_cast<const void*>(input.tokens) : input.features;
  std::byte* const data = upload(inputs_, values, part(options_.inputs.inputs));
  device.tokens = has_tokens ? reinterpret_cast<const std::int32_t*>(data) : nullptr;
  device.features = has_tokens ? nullptr : reinterpret_cast<const float*>(data);
  device.targets = reinterpret_cast<const std::int32_t*>(
      upload(targets_, input.targets, part(options_.inputs.targets)));
  return device;
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
    chunks_[static_cast<std::size_t>(chunk)].model->forward(pass, on_device(input));
  }
  if (options_.links != nullptr) {
    queue_->hand_over();
    options_.links->send_output(chunk, micro_batch);
  }
}

void StageRunner::run_backward(const BackwardKind& kind,
                               int chunk,
                               const PassBoundary& boundary,
                               const BackwardSource& source,
                               const BackwardTarget& target) {
  const TraceSpan span(kind.name, "pass");
  Access access(options_.weights, target.enter);
  begin_pass(chunk, kind.kind);
  Pass pass = make_pass(chunk, boundary, target, options_.recompute, access);
  pass.part = kind.part;
  pass.place = place_of(source.input);
  pass.loss = source.loss;
  chunks_[static_cast<std::size_t>(chunk)].model->backward(
      pass, on_device(source.input), source.loss_scale);
}

void StageRunner::backward_and_send(const BackwardKind& kind,
                                    int chunk,
                                    long micro_batch,
                                    const BackwardSource& source,
                                    const BackwardTarget& target) {
  PassBoundary boundary;
  if (options_.links != nullptr) {
    boundary = options_.links->backward_boundary(
        chunk, micro_batch, source.input.batch * options_.rows_per_sample);
  }
  run_backward(kind, chunk, boundary, source, target);
  if (options_.links != nullptr) {
    queue_->hand_over();
    options_.links->send_gradient(chunk, micro_batch);
  }
}

void StageRunner::backward(int chunk,
                           long micro_batch,
                           const BackwardSource& source,
                           const BackwardTarget& target) {
  backward_and_send({BackwardPart::kWhole, Model::PassKind::kBackward, "backward"},
                    chunk,
                    micro_batch,
                    source,
                    target);
}

void StageRunner::backward_input(int chunk,
                                 long micro_batch,
                                 const BackwardSource& source,
                                 FunctionRef<void()> progress) {
  const auto poll = [&](long) { progress(); };
  const auto no_gradients = [](int) {};
  backward_and_send({BackwardPart::kInput, Model::PassKind::kBackwardInput, "backward input"},
                    chunk,
                    micro_batch,
                    source,
                    no_target(poll, no_gradients));
}

void StageRunner::backward_weight(int chunk,
                                  long micro_batch,
                                  const BackwardSource& source,
                                  const BackwardTarget& target) {
  run_backward({BackwardPart::kWeight, Model::PassKind::kBackwardWeight, "backward weight"},
               chunk,
               options_.links->weight_boundary(chunk, micro_batch),
               source,
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

StageRunner::LossPart StageRunner::evaluate(long micro_batch, const ModelInput& input) {
  const auto nothing = [](long) {};
  const auto no_gradients = [](int) {};
  const bool computes = queue_->kind() != DeviceKind::kDry;
  if (computes) {
    *loss_.as<double>() = 0;
  }
  const std::int32_t* predictions = nullptr;
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
    pass.loss = loss_.as<double>();
    predictions = chunks_[static_cast<std::size_t>(chunk)].model->evaluate(pass, on_device(input));
    if (options_.links != nullptr) {
      queue_->hand_over();
      options_.links->send_output(chunk, micro_batch);
    }
  }
  if (predictions != nullptr && predictions_.data() != nullptr) {
    const auto bytes = static_cast<std::size_t>(input.batch) * sizeof(std::int32_t);
    queue_->copy_to_host(predictions_.data(), predictions, bytes);
    predictions = predictions_.as<std::int32_t>();
  }
  queue_->synchronize();
  return {computes ? *loss_.as<double>() : 0.0, predictions};
}

void StageRunner::finish() {
  if (options_.links != nullptr) {
    options_.links->finish();
  }
}

}  // namespace lockstep
