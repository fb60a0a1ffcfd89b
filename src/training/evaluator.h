// Loss and accuracy over a validation set, each sample once, whatever the number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/integers.h"
#include "comm/communicator.h"
#include "data/dataset.h"
#include "parallel/mesh.h"
#include "parallel/stage_runner.h"
#include "parallel/virtual_layout.h"

namespace lockstep {

struct Evaluation {
  double loss = 0;      ///< mean over all targets
  double accuracy = 0;  ///< of images; NaN for tokens
  long targets = 0;
  /// Images: confusion[label][prediction], counts; empty for tokens.
  std::vector<std::vector<long>> confusion;
};

/// Micro-batches of the set are dealt to virtual ranks and their f64 sums combined as those of a
/// training step, so that every layout gives the same bits.
class Evaluator {
 public:
  /// `max_samples` 0: the whole set.
  Evaluator(const Dataset& dataset, long micro_batch_size, long max_samples);

  /// Collective over all ranks of the mesh.
  Evaluation run(StageRunner& runner, const VirtualLayout& layout, const Mesh& mesh);

  /// Bytes of the buffers for samples.
  [[nodiscard]] std::size_t buffer_bytes() const;
  /// What that will be for such a data set.
  static std::size_t planned_bytes(const DatasetInfo& dataset,
                                   long micro_batch_size,
                                   long max_samples);

 private:
  struct Sums {
    double loss = 0;
    double targets = 0;
    friend Sums operator+(Sums a, Sums b) { return {a.loss + b.loss, a.targets + b.targets}; }
  };

  Sums run_leaf(StageRunner& runner, IndexRange range);
  void count_predictions(const ModelInput& input, const std::int32_t* predictions);
  [[nodiscard]] std::vector<std::vector<long>> gather_confusion(Communicator& group) const;
  ModelInput read(long first, long count);

  const Dataset* dataset_;
  long micro_batch_size_;
  long num_samples_;
  std::vector<long> samples_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> features_;
  std::vector<std::int32_t> targets_;
  long next_micro_batch_ = 0;      ///< of a run, as the runner counts
  std::vector<double> confusion_;  ///< counts of this rank, [classes x classes]
};

}  // namespace lockstep
