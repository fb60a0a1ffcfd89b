// Gradients of a step: accumulation over micro-batches, virtual ranks and real ranks, in the
// canonical order, overlapped with the backward pass.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/queue.h"
#include "nn/parameter_table.h"
#include "nn/weights.h"
#include "parallel/parallel_config.h"
#include "parallel/virtual_layout.h"

namespace lockstep {

/// Holds log2(n) + 1 flat accumulators for the n virtual ranks this rank owns. A virtual rank's
/// micro-batches are folded into one accumulator in index order; accumulators are combined by the
/// aligned tree as soon as both sides exist; the rank's sum is reduced over the real ranks bucket
/// by bucket, in the order in which the last backward pass completes them.
///
/// In a step, for each owned virtual rank in order: `begin_leaf`, its passes on `gradients()`
/// (the last one with `ready` as its callback), `end_leaf`; then `finish`.
class GradientReducer {
 public:
  /// Collective.
  GradientReducer(const ParameterTable& table,
                  const VirtualLayout& layout,
                  const ParallelConfig& config,
                  Communicator& data_group,
                  Queue& queue);

  void begin_leaf(int owned_index);
  /// Where the passes of the current virtual rank accumulate.
  [[nodiscard]] Gradients gradients() const;
  /// Elements from `first` on are complete for the current virtual rank: combines them with the
  /// accumulators before it, and starts the buckets that are complete.
  void ready(long first);
  /// Lets started reductions progress. Cheap.
  void poll();
  /// Ends the current virtual rank; `empty`: it had no micro-batch and counts as zeros.
  void end_leaf(bool empty);

  /// Waits for all reductions and adds the input side of a tied embedding. The result is the sum
  /// over the global batch of all ranks, and stays until the next begin_leaf.
  void finish();
  /// Gradients of the parameters (the tied region is left out), flat_size() elements.
  [[nodiscard]] const float* result() const { return accumulators_.front() + tied_size_; }

  [[nodiscard]] std::size_t accumulator_bytes() const;
  [[nodiscard]] int num_accumulators() const { return static_cast<int>(accumulators_.size()); }
  [[nodiscard]] std::size_t num_buckets() const { return buckets_.size(); }

 private:
  struct Bucket {
    long begin = 0;
    long end = 0;
    std::unique_ptr<Operation> reduction;
  };

  void combine(long begin, long end);
  void start_complete_buckets();

  const ParameterTable* table_;
  Queue* queue_;
  Communicator* group_;
  long tied_size_;
  long size_;
  int owned_;
  bool overlap_;
  Memory root_memory_;
  Memory other_memory_;
  std::vector<float*> accumulators_;
  std::vector<Bucket> buckets_;  ///< from the end of the buffer to its front

  int leaf_ = 0;
  int depth_ = 0;
  long ready_from_ = 0;
  std::size_t next_bucket_ = 0;
};

}  // namespace lockstep
