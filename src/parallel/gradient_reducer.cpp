#include "parallel/gradient_reducer.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

unsigned bits_of(int value) {
  return static_cast<unsigned>(value);
}

}  // namespace

GradientReducer::GradientReducer(const ParameterTable& table,
                                 const VirtualLayout& layout,
                                 const ParallelConfig& config,
                                 Communicator& data_group,
                                 Queue& queue)
    : table_(&table),
      queue_(&queue),
      group_(&data_group),
      tied_size_(table.tied_size()),
      size_(table.gradient_size()),
      owned_(layout.owned()),
      overlap_(config.overlap) {
  LOCKSTEP_CHECK(is_power_of_two(owned_));
  const auto bytes = static_cast<std::size_t>(size_) * sizeof(float);
  const int extra = std::countr_zero(bits_of(owned_));
  root_memory_ = data_group.allocate(bytes);
  other_memory_ = queue.allocate(bytes * static_cast<std::size_t>(extra));
  accumulators_.push_back(root_memory_.as<float>());
  for (int i = 0; i < extra; ++i) {
    accumulators_.push_back(other_memory_.as<float>() + i * size_);
  }
  if (data_group.size() == 1) {
    return;
  }
  const Reduction reduction =
      config.reduction == "native" ? Reduction::kNative : Reduction::kOrdered;
  const long bucket_elements =
      std::max(1L, (config.bucket_mib << 20U) / 4 / kChunkElements) * kChunkElements;
  for (long end = size_; end > 0; end -= std::min(end, bucket_elements)) {
    const long begin = std::max(0L, end - bucket_elements);
    buckets_.push_back(
        {begin,
         end,
         data_group.make_all_reduce(accumulators_.front() + begin, end - begin, reduction)});
  }
}

void GradientReducer::begin_leaf(int owned_index) {
  leaf_ = owned_index;
  depth_ = std::popcount(bits_of(owned_index));
  ready_from_ = size_;
  if (owned_index == 0) {
    next_bucket_ = 0;
  }
}

Gradients GradientReducer::gradients() const {
  return {*table_, accumulators_[static_cast<std::size_t>(depth_)]};
}

void GradientReducer::combine(long begin, long end) {
  // Leaf i completes as many levels of the tree as it has trailing ones.
  const int levels = std::countr_one(bits_of(leaf_));
  for (int level = 0; level < levels; ++level) {
    float* left = accumulators_[static_cast<std::size_t>(depth_ - level - 1)] + begin;
    const float* right = accumulators_[static_cast<std::size_t>(depth_ - level)] + begin;
    const float* const inputs[] = {left, right};
    float* const outputs[] = {left};
    launch(*queue_,
           SumTree{.inputs = inputs,
                   .num_inputs = 2,
                   .outputs = outputs,
                   .num_outputs = 1,
                   .count = end - begin});
  }
}

void GradientReducer::ready(long first) {
  if (first < ready_from_) {
    combine(first, ready_from_);
    ready_from_ = first;
    if (overlap_ && leaf_ == owned_ - 1) {
      start_complete_buckets();
    }
  }
  poll();
}

void GradientReducer::start_complete_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].begin >= ready_from_) {
    buckets_[next_bucket_].reduction->start();
    ++next_bucket_;
  }
}

void GradientReducer::poll() {
  if (next_bucket_ > 0) {
    group_->poll();
  }
}

void GradientReducer::end_leaf(bool empty) {
  if (empty) {
    launch(*queue_,
           FillZero{.data = accumulators_[static_cast<std::size_t>(depth_)],
                    .bytes = static_cast<std::size_t>(size_) * sizeof(float)});
  }
  ready(0);
}

void GradientReducer::finish() {
  start_complete_buckets();
  for (const Bucket& bucket : buckets_) {
    bucket.reduction->wait();
  }
  if (tied_size_ > 0) {
    const Parameter& tied = (*table_)[table_->tied_index()];
    float* output_side = accumulators_.front() + tied_size_ + tied.offset;
    const float* const inputs[] = {output_side, accumulators_.front()};
    float* const outputs[] = {output_side};
    launch(*queue_,
           SumTree{.inputs = inputs,
                   .num_inputs = 2,
                   .outputs = outputs,
                   .num_outputs = 1,
                   .count = tied_size_});
  }
}

std::size_t GradientReducer::accumulator_bytes() const {
  return accumulators_.size() * static_cast<std::size_t>(size_) * sizeof(float);
}

}  // namespace lockstep
