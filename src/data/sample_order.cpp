#include "data/sample_order.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/integers.h"
#include "base/philox.h"

namespace lockstep {
namespace {

// Four rounds make a strong permutation only of large halves. With halves of a few bits the cycle
// walk shows what is left of the structure: over 40,000 epochs of 5 samples, 6 rounds put some
// samples up to 9 % too often at a place, 8 rounds 3 %; 12 cannot be told from chance (chi-squared).
constexpr int kRounds = 6;
constexpr int kRoundsOfSmallHalves = 12;
constexpr unsigned kSmallHalfBits = 4;       // up to 256 samples
constexpr std::uint32_t kWordsPerRound = 4;  // every call uses one word of its own Philox block

/// One pass of the network over 2 * half_bits bits.
std::uint64_t permute(std::uint64_t value, const RandomStream& stream, unsigned half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  const std::uint64_t rounds = half_bits <= kSmallHalfBits ? kRoundsOfSmallHalves : kRounds;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t input = round << 32U | right;
    const std::uint64_t mixed = left ^ (stream.bits(input * kWordsPerRound) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

SampleOrder::SampleOrder(std::uint64_t seed, long num_samples, bool shuffle)
    : seed_(seed), num_samples_(num_samples), shuffle_(shuffle) {
  LOCKSTEP_CHECK(num_samples > 0);
  const auto bits = std::bit_width(static_cast<std::uint64_t>(num_samples - 1));
  half_bits_ = static_cast<unsigned>(std::max(1, ceil_div(static_cast<int>(bits), 2)));
}

long SampleOrder::sample_at(long epoch, long place) const {
  LOCKSTEP_CHECK(epoch >= 0 && place >= 0 && place < num_samples_);
  if (!shuffle_) {
    return place;
  }
  const auto limit = static_cast<std::uint64_t>(num_samples_);
  const RandomStream stream(seed_, RandomPurpose::kSampleOrder, static_cast<std::uint64_t>(epoch));
  auto value = static_cast<std::uint64_t>(place);
  // The walk ends: the cycle of `place` returns at the latest to `place` itself.
  do {
    value = permute(value, stream, half_bits_);
  } while (value >= limit);
  return static_cast<long>(value);
}

long num_micro_batches(long batch_samples, long micro_batch_size) {
  LOCKSTEP_CHECK(batch_samples >= 0 && micro_batch_size > 0);
  return ceil_div(batch_samples, micro_batch_size);
}

MicroBatchRange micro_batch_range(long batch_samples, long micro_batch_size, long index) {
  LOCKSTEP_CHECK(index >= 0 && index < num_micro_batches(batch_samples, micro_batch_size));
  const long first = index * micro_batch_size;
  return {first, std::min(micro_batch_size, batch_samples - first)};
}

BatchPlan::BatchPlan(long num_samples, long global_batch_size, long num_steps, bool whole_epochs)
    : num_samples_(num_samples),
      global_batch_size_(global_batch_size),
      num_steps_(num_steps),
      whole_epochs_(whole_epochs) {
  LOCKSTEP_CHECK(num_samples > 0 && global_batch_size > 0 && num_steps >= 0);
}

BatchPlan BatchPlan::for_steps(long num_samples, long global_batch_size, long num_steps) {
  return {num_samples, global_batch_size, num_steps, false};
}

BatchPlan BatchPlan::for_epochs(long num_samples, long global_batch_size, long num_epochs) {
  LOCKSTEP_CHECK(global_batch_size > 0);
  return {
      num_samples, global_batch_size, ceil_div(num_samples, global_batch_size) * num_epochs, true};
}

long BatchPlan::largest_batch() const {
  return whole_epochs_ ? std::min(global_batch_size_, num_samples_) : global_batch_size_;
}

GlobalBatch BatchPlan::batch(long step) const {
  LOCKSTEP_CHECK(step >= 0 && step < num_steps_);
  if (!whole_epochs_) {
    return {step * global_batch_size_, global_batch_size_};
  }
  const long steps_per_epoch = ceil_div(num_samples_, global_batch_size_);
  const long place = step % steps_per_epoch * global_batch_size_;
  return {step / steps_per_epoch * num_samples_ + place,
          std::min(global_batch_size_, num_samples_ - place)};
}

long BatchPlan::samples_after(long step) const {
  const GlobalBatch last = batch(step);
  return last.first_position + last.num_samples;
}

double BatchPlan::epochs_after(long step) const {
  return static_cast<double>(samples_after(step)) / static_cast<double>(num_samples_);
}

}  // namespace lockstep
