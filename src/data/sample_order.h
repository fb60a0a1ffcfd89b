// Which sample stands at which position of the run, and how positions are cut into steps.
//
// Positions are global and count on over epochs: position p is place p mod N of epoch floor(p / N)
// of a data set of N samples. Nothing here depends on a rank.
#pragma once

#include <cstdint>

namespace lockstep {

/// The order of the samples in every epoch: a pure function of (seed, epoch), in constant memory.
/// A Feistel network over the next even power of two, its rounds from Philox, walked along its cycle
/// until it lands below N (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
class SampleOrder {
 public:
  /// `num_samples` > 0. Without `shuffle` the order is that of the data set.
  SampleOrder(std::uint64_t seed, long num_samples, bool shuffle);

  /// The sample at place `place` (below num_samples) of `epoch`. Every epoch has each sample exactly
  /// once. Cost: 6 Philox blocks a walk step (12 up to 256 samples), on average at most 4 steps.
  /// Thread-safe.
  [[nodiscard]] long sample_at(long epoch, long place) const;

  /// The sample at a global position.
  [[nodiscard]] long sample_at_position(long position) const {
    return sample_at(position / num_samples_, position % num_samples_);
  }

  [[nodiscard]] long num_samples() const { return num_samples_; }

 private:
  std::uint64_t seed_;
  long num_samples_;
  bool shuffle_;
  unsigned half_bits_ = 1;
};

/// One step's global batch: the positions [first_position, first_position + num_samples).
struct GlobalBatch {
  long first_position = 0;
  long num_samples = 0;
};

/// One micro-batch of a global batch.
struct MicroBatchRange {
  long first_sample = 0;  ///< counted from the front of the global batch
  long num_samples = 0;
};

/// The micro-batches of a batch: all of `micro_batch_size` samples but the last, which may be smaller.
long num_micro_batches(long batch_samples, long micro_batch_size);
MicroBatchRange micro_batch_range(long batch_samples, long micro_batch_size, long index);

/// The steps of a run.
class BatchPlan {
 public:
  /// `num_steps` steps (>= 0) of exactly `global_batch_size` samples; positions run on over epochs, so
  /// that a batch may span two of them (or more, if it is larger than the data set).
  static BatchPlan for_steps(long num_samples, long global_batch_size, long num_steps);

  /// `num_epochs` (>= 0) whole epochs; the last batch of each is its remainder.
  static BatchPlan for_epochs(long num_samples, long global_batch_size, long num_epochs);

  [[nodiscard]] long num_steps() const { return num_steps_; }
  [[nodiscard]] long num_samples() const { return num_samples_; }
  [[nodiscard]] long global_batch_size() const { return global_batch_size_; }

  /// Size of the largest batch of the plan: what buffers must hold.
  [[nodiscard]] long largest_batch() const;

  /// The batch of step t, 0 <= t < num_steps().
  [[nodiscard]] GlobalBatch batch(long step) const;

  [[nodiscard]] long epoch_of(long position) const { return position / num_samples_; }

  /// Samples consumed when `step` has been done.
  [[nodiscard]] long samples_after(long step) const;

  /// The same in epochs: 0.5 is half of the first.
  [[nodiscard]] double epochs_after(long step) const;

 private:
  BatchPlan(long num_samples, long global_batch_size, long num_steps, bool whole_epochs);

  long num_samples_;
  long global_batch_size_;
  long num_steps_;
  bool whole_epochs_;
};

}  // namespace lockstep
