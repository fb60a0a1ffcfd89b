#include "parallel/gradient_reducer.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "comm/exchange.h"
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
                                 bool one_micro_batch,
                                 Communicator& data_group,
                                 Queue& queue)
    : table_(&table),
      queue_(&queue),
      group_(&data_group),
      tied_size_(table.tied_size()),
      size_(table.gradient_size()),
      owned_(layout.owned()),
      overlap_(config.overlap),
      scatters_(config.zero_stage > 0 && data_group.size() > 1),
      collects_(config.accumulate == "tree-fold"),
      slotted_(scatters_ && config.zero_stage > 1 && owned_ == 1 &&
               (collects_ || one_micro_batch)) {
  LOCKSTEP_CHECK(is_power_of_two(owned_));
  collects_ = collects_ || slotted_;
  for (const IndexRange& range : chunks) {
    const bool first = chunks_.empty();
    chunks_.push_back(
        {.range = {first ? 0 : tied_size_ + range.begin, tied_size_ + range.end}, .buckets = {}});
  }
  const std::vector<IndexRange> buckets =
      make_buckets(table, chunks, config.bucket_mib << 20U, config.zero_stage > 1);
  owned_ranges_ = scatters_ ? owned_ranges(table, buckets, data_group.size(), data_group.rank())
                            : std::vector<IndexRange>{{0, table.flat_size()}};
  if (slotted_) {
    take_slots();
  } else {
    take_accumulators();
  }
  make_buckets_of_chunks(buckets,
                         config.reduction == "native" ? Reduction::kNative : Reduction::kOrdered);
  plan_result();
}

void GradientReducer::take_accumulators() {
  const int extra = std::countr_zero(bits_of(owned_));
  root_memory_ = group_->allocate(bytes_of(size_, DType::kF32));
  other_memory_ = queue_->allocate(bytes_of(size_, DType::kF32) * static_cast<std::size_t>(extra));
  accumulators_.push_back(root_memory_.as<float>());
  for (int i = 0; i < extra; ++i) {
    accumulators_.push_back(other_memory_.as<float>() + i * size_);
  }
}

void GradientReducer::take_slots() {
  slots_ = make_unit_slots(*table_);
  root_memory_ = group_->allocate(bytes_of(slots_.elements, DType::kF32));
  for (const int slot : slots_.slot_of) {
    unit_bases_.push_back(root_memory_.as<float>() +
                          slots_.offset_of[static_cast<std::size_t>(slot)]);
  }
}

int GradientReducer::unit_of(long element) const {
  const auto& units = table_->units();
  if (element < tied_size_) {
    return static_cast<int>(units.size());
  }
  const auto after = std::upper_bound(
      units.begin(), units.end(), element - tied_size_, [](long value, const IndexRange& unit) {
        return value < unit.begin;
      });
  return static_cast<int>(after - units.begin()) - 1;
}

long GradientReducer::begin_of_unit(int unit) const {
  const auto index = static_cast<std::size_t>(unit);
  return index == table_->units().size() ? 0 : tied_size_ + table_->units()[index].begin;
}

float* GradientReducer::reduced_at(const IndexRange& range) const {
  if (!slotted_) {
    return accumulators_.front() + range.begin;
  }
  const int unit = unit_of(range.begin);
  return unit_bases_[static_cast<std::size_t>(unit)] + (range.begin - begin_of_unit(unit));
}

void GradientReducer::make_buckets_of_chunks(const std::vector<IndexRange>& buckets,
                                             Reduction reduction) {
  if (group_->size() == 1 && !collects_) {
    return;
  }
  for (const IndexRange& range : buckets) {
    std::size_t index = 0;
    while (range.begin >= chunks_[index].range.end) {
      ++index;
    }
    Bucket bucket{.range = range, .unit = unit_of(range.begin), .data = reduced_at(range)};
    bucket.own = range;
    if (scatters_) {
      const IndexRange slice =
          slice_of(range.size(), kChunkElements, group_->size(), group_->rank());
      bucket.own = {range.begin + slice.begin, range.begin + slice.end};
      bucket.reduction = group_->make_reduce_scatter(bucket.data, range.size());
    } else if (group_->size() > 1) {
      bucket.reduction = group_->make_all_reduce(bucket.data, range.size(), reduction);
    }
    chunks_[index].buckets.push_back(std::move(bucket));
  }
}

// Kept sums: the tied region's, then those of the parameters, ascending.
void GradientReducer::plan_result() {
  if (!collects_) {
    result_ = accumulators_.front() + tied_size_;
    pieces_ = {{0, 0, table_->flat_size()}};
    return;
  }
  std::vector<Bucket*> ascending;
  long total = 0;
  for (Chunk& chunk : chunks_) {
    for (Bucket& bucket : chunk.buckets) {
      ascending.push_back(&bucket);
      total += bucket.own.size();
    }
  }
  std::sort(ascending.begin(), ascending.end(), [](const Bucket* a, const Bucket* b) {
    return a->range.begin < b->range.begin;
  });
  kept_memory_ = queue_->allocate(bytes_of(total, DType::kF32));
  float* next = kept_memory_.as<float>();
  result_ = next;
  for (Bucket* bucket : ascending) {
    bucket->kept = next;
    next += bucket->own.size();
    if (bucket->range.begin < tied_size_) {
      result_ = next;
    } else if (bucket->own.size() > 0) {
      pieces_.push_back(
          {bucket->own.begin - tied_size_, bucket->kept - result_, bucket->own.size()});
    }
  }
}

void GradientReducer::begin_leaf(int chunk, int owned_index) {
  Chunk& own = this->chunk(chunk);
  if (own.ends_round) {  // another one begins
    keep_all(own);
  }
  own.leaf = owned_index;
  own.depth = std::popcount(bits_of(owned_index));
  own.ready_from = own.range.end;
}

Gradients GradientReducer::gradients(int chunk) const {
  return slotted_ ? Gradients(*table_, unit_bases_)
                  : Gradients(*table_, accumulator(chunks_[static_cast<std::size_t>(chunk)].depth));
}

void GradientReducer::enter(int unit) {
  if (!slotted_) {
    return;
  }
  const int slot = slots_.slot_of[static_cast<std::size_t>(unit)];
  for (Chunk& chunk : chunks_) {
    for (Bucket& bucket : chunk.buckets) {
      if (bucket.is_pending && slots_.slot_of[static_cast<std::size_t>(bucket.unit)] == slot) {
        keep(chunk, bucket);
      }
    }
  }
}

void GradientReducer::combine(const Chunk& chunk, long begin, long end) {
  // Leaf i completes as many levels of the tree as it has trailing ones.
  const int levels = std::countr_one(bits_of(chunk.leaf));
  for (int level = 0; level < levels; ++level) {
    float* left = accumulator(chunk.depth - level - 1) + begin;
    const float* right = accumulator(chunk.depth - level) + begin;
    add(left, right, end - begin, false);
  }
}

void GradientReducer::ready(int chunk, long first) {
  Chunk& own = this->chunk(chunk);
  if (first < own.ready_from) {
    if (!slotted_) {
      combine(own, first, own.ready_from);
    }
    own.ready_from = first;
    if ((overlap_ || slotted_) && own.leaf == owned_ - 1) {
      start_complete_buckets(own);
    }
  }
  poll();
}

void GradientReducer::start_complete_buckets(Chunk& chunk) {
  while (chunk.next_bucket < chunk.buckets.size() &&
         chunk.buckets[chunk.next_bucket].range.begin >= chunk.ready_from) {
    Bucket& bucket = chunk.buckets[chunk.next_bucket++];
    if (bucket.reduction) {
      bucket.reduction->start();
    }
    bucket.is_pending = true;
  }
}

void GradientReducer::poll() {
  group_->poll();
}

void GradientReducer::contribute_zeros(int chunk, int unit) {
  if (!slotted_) {
    return;  // at the end, all at once
  }
  const long end = this->chunk(chunk).ready_from;
  bool entered = false;
  for (const Bucket& bucket : this->chunk(chunk).buckets) {
    if (bucket.unit != unit || bucket.range.begin >= end) {
      continue;
    }
    if (!entered) {
      enter(unit);
      entered = true;
    }
    launch(*queue_,
           FillZero{.data = bucket.data, .bytes = bytes_of(bucket.range.size(), DType::kF32)});
  }
  if (entered) {
    ready(chunk, begin_of_unit(unit));
  }
}

void GradientReducer::end_leaf(int chunk, bool empty) {
  const Chunk& own = this->chunk(chunk);
  if (empty && slotted_) {
    for (const Bucket& bucket : own.buckets) {
      contribute_zeros(chunk, bucket.unit);
    }
  } else if (empty) {
    launch(*queue_,
           FillZero{.data = accumulator(own.depth) + own.range.begin,
                    .bytes = bytes_of(own.range.size(), DType::kF32)});
  }
  ready(chunk, own.range.begin);
  this->chunk(chunk).ends_round = own.leaf == owned_ - 1;
}

void GradientReducer::add(float* to, const float* values, long count, bool overwrites) {
  const float* const inputs[] = {overwrites ? values : to, values};
  float* const outputs[] = {to};
  launch(*queue_,
         SumTree{.inputs = inputs,
                 .num_inputs = overwrites ? 1 : 2,
                 .outputs = outputs,
                 .num_outputs = 1,
                 .count = count});
}

void GradientReducer::keep(Chunk& chunk, Bucket& bucket) {
  if (bucket.reduction) {
    bucket.reduction->wait();
  }
  bucket.is_pending = false;
  if (collects_) {
    add(bucket.kept,
        bucket.data + (bucket.own.begin - bucket.range.begin),
        bucket.own.size(),
        chunk.is_first_round);
  }
}

// Ends a round of a chunk.
void GradientReducer::keep_all(Chunk& chunk) {
  chunk.ready_from = chunk.range.begin;
  start_complete_buckets(chunk);
  for (Bucket& bucket : chunk.buckets) {
    if (bucket.is_pending) {
      keep(chunk, bucket);
    }
  }
  chunk.next_bucket = 0;
  chunk.is_first_round = false;
  chunk.ends_round = false;
}

void GradientReducer::finish() {
  // From the last chunk to the first, the order in which they complete.
  for (std::size_t i = chunks_.size(); i-- > 0;) {
    chunks_[i].ready_from = chunks_[i].range.begin;
    start_complete_buckets(chunks_[i]);
  }
  for (Chunk& chunk : chunks_) {
    keep_all(chunk);
    chunk.is_first_round = true;
    chunk.ready_from = chunk.range.end;
  }
  add_tied_input();
}

// Slices of the tied region and of the parameter are cut alike.
void GradientReducer::add_tied_input() {
  if (tied_size_ == 0) {
    return;
  }
  if (!collects_ && !scatters_) {
    const long first = (*table_)[table_->tied_index()].offset;
    add(result_ + first, accumulators_.front(), tied_size_, false);
    return;
  }
  for (const Chunk& chunk : chunks_) {
    for (const Bucket& region : chunk.buckets) {
      if (region.range.begin < tied_size_) {
        add_tied_slice(chunk, region);
      }
    }
  }
}

void GradientReducer::add_tied_slice(const Chunk& chunk, const Bucket& region) {
  const long first = tied_size_ + (*table_)[table_->tied_index()].offset;
  const auto twin =
      std::find_if(chunk.buckets.begin(), chunk.buckets.end(), [&](const Bucket& bucket) {
        return bucket.range.begin == first + region.range.begin;
      });
  LOCKSTEP_CHECK(twin != chunk.buckets.end());
  LOCKSTEP_CHECK(twin->own.size() == region.own.size());
  const auto place = [this](const Bucket& bucket) {
    return collects_ ? bucket.kept : accumulators_.front() + bucket.own.begin;
  };
  add(place(*twin), place(region), region.own.size(), false);
}

std::size_t GradientReducer::accumulator_bytes() const {
  return root_memory_.bytes() + other_memory_.bytes() + kept_memory_.bytes();
}

}  // namespace lockstep
