#include "parallel/pipeline_links.h"

#include "base/error.h"
#include "base/integers.h"
#include "base/trace.h"

namespace lockstep {
namespace {

int forward_tag(int global_stage) {
  return 2 * global_stage;
}

int backward_tag(int global_stage) {
  return 2 * global_stage + 1;
}

}  // namespace

PipelineLinks::PipelineLinks(Communicator& pipeline, const Sizes& sizes, Queue& queue)
    : group_(&pipeline),
      sizes_(sizes),
      message_bytes_(static_cast<std::size_t>(sizes.rows * sizes.cols) * size_of(sizes.dtype)),
      chunks_(static_cast<std::size_t>(sizes.chunks)) {
  std::size_t buffers = 0;
  for (int index = 0; index < sizes.chunks; ++index) {
    count_buffers(index);
    const Chunk& own = chunk(index);
    buffers += own.inputs.size() + own.outputs.size() + own.gradients.size();
  }
  const std::size_t stride = round_up(message_bytes_, kMemoryAlignment);
  memory_ = queue.allocate(buffers * stride);
  std::byte* next = memory_.data();
  for (Chunk& own : chunks_) {
    for (std::vector<Buffer>* all : {&own.inputs, &own.outputs, &own.gradients}) {
      for (Buffer& buffer : *all) {
        buffer.data = next;
        next += stride;
      }
    }
  }
  for (int index = 0; index < sizes.chunks; ++index) {
    make_operations(index);
  }
}

long PipelineLinks::in_flight(int global_stage) const {
  const auto rank = static_cast<std::size_t>(global_stage % group_->size());
  const auto index = static_cast<std::size_t>(global_stage / group_->size());
  return sizes_.in_flight[rank][index];
}

int PipelineLinks::slots(int chunk) const {
  return static_cast<int>(in_flight(chunk * group_->size() + group_->rank()));
}

void PipelineLinks::count_buffers(int index) {
  Chunk& own = chunk(index);
  const int stage = index * group_->size() + group_->rank();
  own.is_first = stage == 0;
  own.is_last = stage == sizes_.chunks * group_->size() - 1;
  const auto count = [](long number) { return static_cast<std::size_t>(number + 1); };
  if (!own.is_first) {
    own.inputs.resize(count(in_flight(stage)));
  }
  if (!own.is_last) {
    own.outputs.resize(count(in_flight(stage)));
  }
  own.gradients.resize(count(in_flight(own.is_first ? stage : stage - 1)));
}

void PipelineLinks::make_operations(int index) {
  Chunk& own = chunk(index);
  const int ranks = group_->size();
  const int stage = index * ranks + group_->rank();
  const int before = (group_->rank() + ranks - 1) % ranks;
  const int behind = (group_->rank() + 1) % ranks;
  for (Buffer& buffer : own.inputs) {
    buffer.receive = group_->make_receive(buffer.data, message_bytes_, before, forward_tag(stage));
  }
  for (Buffer& buffer : own.outputs) {
    buffer.send = group_->make_send(buffer.data, message_bytes_, behind, forward_tag(stage + 1));
  }
  for (Buffer& buffer : own.gradients) {
    if (!own.is_last) {
      buffer.receive =
          group_->make_receive(buffer.data, message_bytes_, behind, backward_tag(stage));
    }
    if (!own.is_first) {
      buffer.send = group_->make_send(buffer.data, message_bytes_, before, backward_tag(stage - 1));
    }
  }
}

Matrix PipelineLinks::matrix(const Buffer& buffer, long rows) const {
  return {buffer.data, sizes_.dtype, rows, sizes_.cols};
}

void PipelineLinks::expect(Buffer& buffer) {
  if (buffer.is_expected) {
    return;
  }
  if (buffer.send) {
    buffer.send->wait();
  }
  if (buffer.receive) {
    buffer.receive->start();
  }
  buffer.is_expected = true;
}

void PipelineLinks::expect_input(int chunk, long micro_batch) {
  if (!this->chunk(chunk).is_first) {
    expect(of(this->chunk(chunk).inputs, micro_batch));
  }
}

void PipelineLinks::expect_gradient(int chunk, long micro_batch) {
  expect(of(this->chunk(chunk).gradients, micro_batch));
}

PassBoundary PipelineLinks::forward_boundary(int chunk, long micro_batch, long batch_rows) {
  Chunk& own = this->chunk(chunk);
  PassBoundary boundary;
  boundary.slot = static_cast<int>(micro_batch % slots(chunk));
  if (!own.is_first) {
    expect_input(chunk, micro_batch);
    Buffer& buffer = of(own.inputs, micro_batch);
    const TraceSpan span("wait", "activations", TraceTrack::kWaiting);
    buffer.receive->wait();
    buffer.is_expected = false;
    boundary.input = matrix(buffer, batch_rows);
  }
  if (!own.is_last) {
    Buffer& buffer = of(own.outputs, micro_batch);
    buffer.send->wait();
    boundary.output = matrix(buffer, batch_rows);
  }
  return boundary;
}

PassBoundary PipelineLinks::backward_boundary(int chunk, long micro_batch, long batch_rows) {
  Chunk& own = this->chunk(chunk);
  PassBoundary boundary;
  boundary.slot = static_cast<int>(micro_batch % slots(chunk));
  expect_gradient(chunk, micro_batch);
  Buffer& buffer = of(own.gradients, micro_batch);
  if (buffer.receive) {
    const TraceSpan span("wait", "gradients", TraceTrack::kWaiting);
    buffer.receive->wait();
  }
  buffer.is_expected = false;
  boundary.gradient = matrix(buffer, batch_rows);
  return boundary;
}

PassBoundary PipelineLinks::weight_boundary(int chunk, long micro_batch) const {
  PassBoundary boundary;
  boundary.slot = static_cast<int>(micro_batch % slots(chunk));
  return boundary;
}

void PipelineLinks::send_output(int chunk, long micro_batch) {
  Chunk& own = this->chunk(chunk);
  if (!own.is_last) {
    of(own.outputs, micro_batch).send->start();
  }
}

void PipelineLinks::send_gradient(int chunk, long micro_batch) {
  Chunk& own = this->chunk(chunk);
  if (!own.is_first) {
    of(own.gradients, micro_batch).send->start();
  }
}

void PipelineLinks::finish() {
  for (const Chunk& own : chunks_) {
    wait_for_sends(own.outputs);
    wait_for_sends(own.gradients);
  }
}

void PipelineLinks::wait_for_sends(const std::vector<Buffer>& buffers) {
  for (const Buffer& buffer : buffers) {
    if (buffer.send) {
      buffer.send->wait();
    }
  }
}

}  // namespace lockstep
