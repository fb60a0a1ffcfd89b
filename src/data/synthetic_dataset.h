// Data that is computed, so that a model can be trained without a file.
//
// Every value is a pure function of (seed, sample, element): the same on every rank and machine.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace lockstep {

struct SyntheticOptions {
  long num_samples = 10000;
  long first_sample = 0;  ///< number of sample 0 in the infinite sequence of samples
  std::uint64_t seed = 1;
  std::int64_t ignore_token = -1;
};

/// Images whose pixels are uniform in [0, 1) and whose labels are uniform over the classes. Computed
/// once at construction. Memory: 4 * num_samples * (features + 1) bytes.
class SyntheticImageDataset : public Dataset {
 public:
  /// All sizes > 0 (RequestError otherwise).
  SyntheticImageDataset(const SyntheticOptions& options, long features, long num_classes);

  void read(std::span<const long> samples, SampleBuffers out) const override;
  [[nodiscard]] long largest_target(long part, long parts) const override;

 protected:
  [[nodiscard]] long count_ignored(std::span<const long> samples) const override;

 private:
  std::vector<float> features_;
  std::vector<std::int32_t> labels_;
};

/// Sequences of ids that are uniform over the vocabulary. Computed when read: no memory.
class SyntheticTokenDataset : public Dataset {
 public:
  /// All sizes > 0, the vocabulary at most 2^31 (RequestError otherwise).
  SyntheticTokenDataset(const SyntheticOptions& options, long seq_length, long vocab_size);

  void read(std::span<const long> samples, SampleBuffers out) const override;
  [[nodiscard]] long largest_target(long part, long parts) const override;

 protected:
  [[nodiscard]] long count_ignored(std::span<const long> samples) const override;

 private:
  template <typename Visit>
  void visit_ids(long sample, Visit visit) const;

  SyntheticOptions options_;
};

}  // namespace lockstep
