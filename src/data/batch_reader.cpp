#include "data/batch_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

/// The micro-batches of a batch of `num_micro_batches` that the rank of `options` owns.
IndexRange owned_range(const BatchReaderOptions& options, long num_micro_batches) {
  return {part_of(num_micro_batches, options.num_virtual, options.virtual_begin).begin,
          part_of(num_micro_batches, options.num_virtual, options.virtual_end - 1).end};
}

long sample_bytes(const DatasetInfo& dataset) {
  constexpr long kElementBytes = 4;  // ids, features and targets alike
  return kElementBytes * (dataset.inputs_per_sample + dataset.targets_per_sample);
}

}  // namespace

BatchReader::BatchReader(const Dataset& dataset,
                         const SampleOrder& order,
                         const BatchPlan& plan,
                         const BatchReaderOptions& options)
    : dataset_(dataset),
      order_(order),
      plan_(plan),
      options_(options),
      next_step_(options.first_step),
      wanted_step_(options.first_step),
      filled_step_(options.first_step) {
  LOCKSTEP_CHECK(order.num_samples() == dataset.num_samples());
  LOCKSTEP_CHECK(plan.num_samples() == dataset.num_samples());
  LOCKSTEP_CHECK(options.micro_batch_size > 0 && options.first_step >= 0);
  LOCKSTEP_CHECK(options.virtual_begin >= 0 && options.virtual_begin < options.virtual_end &&
                 options.virtual_end <= options.num_virtual);

  const Needs needs = needs_of(dataset.info(), plan, options);
  samples_.reserve(static_cast<std::size_t>(needs.numbers));
  allocate(slots_[0], needs.samples, needs.micro_batches);
  if (needs.thread) {
    allocate(slots_[1], needs.samples, needs.micro_batches);
    wanted_step_ = std::min(options.first_step + 1, plan.num_steps());
    reader_ = std::thread([this] { read_ahead(); });
  }
}

BatchReader::Needs BatchReader::needs_of(const DatasetInfo& dataset,
                                         const BatchPlan& plan,
                                         const BatchReaderOptions& options) {
  const long largest_batch = plan.largest_batch();
  const long all = num_micro_batches(largest_batch, options.micro_batch_size);
  Needs needs;
  // A smaller batch can give this rank more micro-batches than the largest one (floors), but never
  // more than its share rounded up.
  needs.micro_batches =
      ceil_div(all * (options.virtual_end - options.virtual_begin), options.num_virtual);
  needs.samples = std::min(needs.micro_batches * options.micro_batch_size, largest_batch);
  needs.numbers = dataset.ignore_token >= 0 ? largest_batch : needs.samples;
  needs.thread = options.read_ahead == ReadAhead::kThread ||
                 (options.read_ahead == ReadAhead::kAuto &&
                  needs.samples * sample_bytes(dataset) > kReadAheadBytes);
  return needs;
}

std::uint64_t BatchReader::planned_bytes(const DatasetInfo& dataset,
                                         const BatchPlan& plan,
                                         const BatchReaderOptions& options) {
  const Needs needs = needs_of(dataset, plan, options);
  const long slots = needs.thread ? 2 : 1;
  return static_cast<std::uint64_t>(slots * needs.samples * sample_bytes(dataset)) +
         static_cast<std::uint64_t>(needs.numbers) * sizeof(long);
}

BatchReader::~BatchReader() {
  if (reader_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    reader_.join();
  }
}

void BatchReader::allocate(Slot& slot, long num_samples, long num_micro_batches) const {
  const auto inputs = static_cast<std::size_t>(num_samples * dataset_.inputs_per_sample());
  if (dataset_.kind() == SampleKind::kTokens) {
    slot.tokens.resize(inputs);
  } else {
    slot.features.resize(inputs);
  }
  slot.targets.resize(static_cast<std::size_t>(num_samples * dataset_.targets_per_sample()));
  slot.micro_batches.reserve(static_cast<std::size_t>(num_micro_batches));
}

std::uint64_t BatchReader::buffer_bytes() const {
  std::uint64_t bytes = samples_.capacity() * sizeof(long);
  for (const Slot& slot : slots_) {
    bytes += slot.tokens.size() * sizeof(std::int32_t) + slot.features.size() * sizeof(float) +
             slot.targets.size() * sizeof(std::int32_t);
  }
  return bytes;
}

const StepBatch& BatchReader::next() {
  LOCKSTEP_CHECK(has_next());
  if (!reader_.joinable()) {
    if (failure_ != nullptr) {
      std::rethrow_exception(failure_);
    }
    try {
      fill(slots_[0], next_step_);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
    ++next_step_;
    return slots_[0].batch;
  }

  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return filled_step_ > next_step_ || failure_ != nullptr; });
  if (filled_step_ <= next_step_) {
    std::rethrow_exception(failure_);
  }
  const long step = next_step_++;
  // The caller has given back the other slot by calling: the step after this one goes there.
  wanted_step_ = std::min(step + 2, plan_.num_steps());
  lock.unlock();
  changed_.notify_all();
  return slot_of(step).batch;
}

void BatchReader::read_ahead() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || filled_step_ < wanted_step_; });
    if (stop_) {
      return;
    }
    const long step = filled_step_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      fill(slot_of(step), step);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure != nullptr) {
      failure_ = failure;
      changed_.notify_all();
      return;
    }
    filled_step_ = step + 1;
    changed_.notify_all();
  }
}

long BatchReader::count_all_targets(const GlobalBatch& batch) {
  if (dataset_.info().ignore_token < 0) {
    return batch.num_samples * dataset_.targets_per_sample();
  }
  samples_.clear();
  for (long i = 0; i < batch.num_samples; ++i) {
    samples_.push_back(order_.sample_at_position(batch.first_position + i));
  }
  return dataset_.count_targets(samples_);
}

void BatchReader::fill(Slot& slot, long step) {
  const GlobalBatch batch = plan_.batch(step);
  const long size = options_.micro_batch_size;
  slot.batch.step = step;
  slot.batch.num_samples = batch.num_samples;
  slot.batch.num_micro_batches = num_micro_batches(batch.num_samples, size);
  slot.batch.num_targets = count_all_targets(batch);

  const IndexRange owned = owned_range(options_, slot.batch.num_micro_batches);
  slot.micro_batches.clear();
  samples_.clear();
  for (long index = owned.begin; index < owned.end; ++index) {
    const MicroBatchRange range = micro_batch_range(batch.num_samples, size, index);
    const auto offset = static_cast<long>(samples_.size());
    const long input = offset * dataset_.inputs_per_sample();
    slot.micro_batches.push_back({index,
                                  range.first_sample,
                                  range.num_samples,
                                  slot.tokens.empty() ? nullptr : slot.tokens.data() + input,
                                  slot.features.empty() ? nullptr : slot.features.data() + input,
                                  slot.targets.data() + offset * dataset_.targets_per_sample()});
    for (long i = 0; i < range.num_samples; ++i) {
      samples_.push_back(order_.sample_at_position(batch.first_position + range.first_sample + i));
    }
  }
  slot.batch.micro_batches = slot.micro_batches;
  dataset_.read(samples_, {slot.tokens.data(), slot.features.data(), slot.targets.data()});
}

}  // namespace lockstep
