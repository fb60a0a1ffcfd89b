#include "parallel/shared_gradient.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

// Behind the tags of activations and gradients (PipelineLinks).
constexpr int kFirstTag = 16384;

}  // namespace

SharedGradient::SharedGradient(const ParameterTable& table,
                               const std::vector<IndexRange>& owned,
                               const std::vector<GradientPiece>& pieces,
                               Communicator& pipeline,
                               Queue& queue)
    : group_(&pipeline), queue_(&queue), peer_(pipeline.rank() == 0 ? pipeline.size() - 1 : 0) {
  if (table.shared_index() < 0) {
    return;
  }
  const Parameter& shared = table[table.shared_index()];
  std::size_t bytes = 0;
  for (const IndexRange& range : owned) {
    for (const GradientPiece& piece : pieces) {
      const long begin = std::max({range.begin, shared.offset, piece.flat});
      const long end =
          std::min({range.end, shared.offset + shared.stored_elements(), piece.flat + piece.count});
      if (begin < end) {
        parts_.push_back({.offset = piece.offset + (begin - piece.flat), .count = end - begin});
        bytes += bytes_of(end - begin, DType::kF32);
      }
    }
  }
  received_ = queue.allocate(bytes);
  float* next = received_.as<float>();
  int tag = kFirstTag;
  for (Part& part : parts_) {
    part.received = next;
    part.receive = group_->make_receive(next, bytes_of(part.count, DType::kF32), peer_, tag++);
    next += part.count;
  }
}

void SharedGradient::add(float* gradients) {
  if (sends_.empty()) {
    int tag = kFirstTag;
    for (const Part& part : parts_) {
      sends_.push_back(group_->make_send(
          gradients + part.offset, bytes_of(part.count, DType::kF32), peer_, tag++));
    }
    sent_from_ = gradients;
  }
  LOCKSTEP_CHECK(sent_from_ == gradients || parts_.empty());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].receive->start();
    sends_[i]->start();
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].receive->wait();
    sends_[i]->wait();
    float* const own = gradients + parts_[i].offset;
    const float* const inputs[] = {own, parts_[i].received};
    float* const outputs[] = {own};
    launch(*queue_,
           SumTree{.inputs = inputs,
                   .num_inputs = 2,
                   .outputs = outputs,
                   .num_outputs = 1,
                   .count = parts_[i].count});
  }
}

}  // namespace lockstep
