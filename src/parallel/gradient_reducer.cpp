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
                                 const std::vector<IndexRange>& chunks,
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
      overlap_(config.overlap),
      owned_ranges_{{0, table.flat_size()}} {
  LOCKSTEP_CHECK(is_power_of_two(owned_));
  const auto bytes = static_cast<std::size_t>(size_) * sizeof(float);
  const int extra = std::countr_zero(bits_of(owned_));
  root_memory_ = data_group.allocate(bytes);
  other_memory_ = queue.allocate(bytes * static_cast<std::size_t>(extra));
  accumulators_.push_back(root_memory_.as<float>());
  for (int i = 0; i < extra; ++i) {
    accumulators_.push_back(other_memory_.as<float>() + i * size_);
  }
  for (const IndexRange& range : chunks) {
    const bool first = chunks_.empty();
    chunks_.push_back({.range = {first ? 0 : tied_size_ + range.begin, tied_size_ + range.end}});
  }
  if (data_group.size() == 1) {
    return;
  }
  const std::vector<IndexRange> buckets = make_buckets(table, chunks, config.bucket_mib << 20U);
  const bool scatters = config.zero_stage > 0;
  if (scatters) {
    owned_ranges_ = owned_ranges(table, buckets, data_group.size(), data_group.rank());
  }
  const Reduction reduction =
      config.reduction == "native" ? Reduction::kNative : Reduction::kOrdered;
  for (const IndexRange& range : buckets) {
    float* const data = accumulators_.front() + range.begin;
    int chunk = 0;
    while (range.begin >= chunks_[static_cast<std::size_t>(chunk)].range.end) {
      ++chunk;
    }
    buckets_.push_back({range,
                        chunk,
                        scatters ? data_group.make_reduce_scatter(data, range.size())
                                 : data_group.make_all_reduce(data, range.size(), reduction)});
  }
}

void GradientReducer::begin_leaf(int chunk, int owned_index) {
  Chunk& own = this->chunk(chunk);
  own.leaf = owned_index;
  own.depth = std::popcount(bits_of(owned_index));
  own.ready_from = own.range.end;
}

Gradients GradientReducer::gradients(int chunk) const {
  return {*table_, accumulator(chunks_[static_cast<std::size_t>(chunk)].depth)};
}

void GradientReducer::combine(const Chunk& chunk, long begin, long end) {
  // Leaf i completes as many levels of the tree as it has trailing ones.
  const int levels = std::countr_one(bits_of(chunk.leaf));
  for (int level = 0; level < levels; ++level) {
    float* left = accumulator(chunk.depth - level - 1) + begin;
    const float* right = accumulator(chunk.depth - level) + begin;
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

void GradientReducer::ready(int chunk, long first) {
  Chunk& own = this->chunk(chunk);
  if (first < own.ready_from) {
    combine(own, first, own.ready_from);
    own.ready_from = first;
    if (overlap_ && own.leaf == owned_ - 1) {
      start_complete_buckets();
    }
  }
  poll();
}

bool GradientReducer::is_complete(const Bucket& bucket) const {
  const Chunk& own = chunks_[static_cast<std::size_t>(bucket.chunk)];
  return own.leaf == owned_ - 1 && bucket.range.begin >= own.ready_from;
}

void GradientReducer::start_complete_buckets() {
  // In this order on every rank, whatever chunk is ahead.
  while (next_bucket_ < buckets_.size() && is_complete(buckets_[next_bucket_])) {
    buckets_[next_bucket_].reduction->start();
    ++next_bucket_;
  }
}

void GradientReducer::poll() {
  group_->poll();
}

void GradientReducer::end_leaf(int chunk, bool empty) {
  const Chunk& own = this->chunk(chunk);
  if (empty) {
    launch(*queue_,
           FillZero{.data = accumulator(own.depth) + own.range.begin,
                    .bytes = static_cast<std::size_t>(own.range.size()) * sizeof(float)});
  }
  ready(chunk, own.range.begin);
}

void GradientReducer::finish() {
  start_complete_buckets();
  LOCKSTEP_CHECK(next_bucket_ == buckets_.size());
  for (const Bucket& bucket : buckets_) {
    bucket.reduction->wait();
  }
  // The next step's leaves start anew.
  next_bucket_ = 0;
  for (Chunk& chunk : chunks_) {
    chunk.ready_from = chunk.range.end;
    chunk.leaf = 0;
  }
  if (tied_size_ > 0) {
    const long first = (*table_)[table_->tied_index()].offset;
    for (const IndexRange& range : owned_ranges_) {
      add_tied_input(std::max(range.begin, first), std::min(range.end, first + tied_size_));
    }
  }
}

void GradientReducer::add_tied_input(long begin, long end) {
  if (begin >= end) {
    return;
  }
  const long first = (*table_)[table_->tied_index()].offset;
  float* const output_side = accumulators_.front() + tied_size_ + begin;
  const float* const inputs[] = {output_side, accumulators_.front() + begin - first};
  float* const outputs[] = {output_side};
  launch(*queue_,
         SumTree{.inputs = inputs,
                 .num_inputs = 2,
                 .outputs = outputs,
                 .num_outputs = 1,
                 .count = end - begin});
}

std::size_t GradientReducer::accumulator_bytes() const {
  return accumulators_.size() * static_cast<std::size_t>(size_) * sizeof(float);
}

}  // namespace lockstep
