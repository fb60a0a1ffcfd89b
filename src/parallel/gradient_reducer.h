// Gradients of a step: accumulation over micro-batches, virtual ranks and real ranks, in the
// canonical order, overlapped with the backward pass.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/queue.h"
#include "nn/parameter_table.h"
#include "nn/weights.h"
#include "parallel/buckets.h"
#include "parallel/parallel_config.h"
#include "parallel/virtual_layout.h"

namespace lockstep {

/// Holds log2(n) + 1 flat accumulators for the n virtual ranks this rank owns. A virtual rank's
/// micro-batches are folded into one accumulator in index order; accumulators are combined by the
/// aligned tree as soon as both sides exist; the rank's sum is reduced over the real ranks bucket
/// by bucket, in the order in which the last backward pass completes them: to every rank, or from
/// ZeRO stage 1 on to the rank that owns a slice.
///
/// The parts of the model on this rank (chunks) go through the virtual ranks each at its own pace. In a
/// step, for each chunk and each owned virtual rank in order: `begin_leaf`, its passes on
/// `gradients()` (the last one with `ready` as its callback), `end_leaf`; then `finish`.
class GradientReducer {
 public:
  /// `chunks`: elements of the parameters of each chunk, ascending. Collective.
  GradientReducer(const ParameterTable& table,
                  const std::vector<IndexRange>& chunks,
                  const VirtualLayout& layout,
                  const ParallelConfig& config,
                  Communicator& data_group,
                  Queue& queue);

  void begin_leaf(int chunk, int owned_index);
  /// Where the passes of the chunk's current virtual rank accumulate.
  [[nodiscard]] Gradients gradients(int chunk) const;
  /// The chunk's elements from `first` on are complete for its current virtual rank: combines them with
  /// the accumulators before it, and starts the buckets that are complete.
  void ready(int chunk, long first);
  /// Lets started reductions progress. Cheap.
  void poll();
  /// Ends the chunk's current virtual rank; `empty`: it had no micro-batch and counts as zeros.
  void end_leaf(int chunk, bool empty);

  /// Waits for all reductions and adds the input side of a tied embedding. The result is the sum
  /// over the global batch of all ranks (of what this rank owns, from stage 1 on; the rest is
  /// undefined), and stays until the next begin_leaf.
  void finish();
  /// Gradients of the parameters (the tied region is left out), flat_size() elements.
  [[nodiscard]] float* result() const { return accumulators_.front() + tied_size_; }
  /// Elements of the parameters of which the result holds sums.
  [[nodiscard]] const std::vector<IndexRange>& owned() const { return owned_ranges_; }

  [[nodiscard]] std::size_t accumulator_bytes() const;
  [[nodiscard]] int num_accumulators() const { return static_cast<int>(accumulators_.size()); }
  [[nodiscard]] std::size_t num_buckets() const { return buckets_.size(); }

 private:
  struct Bucket {
    IndexRange range;
    int chunk = 0;
    std::unique_ptr<Operation> reduction;
  };
  struct Chunk {
    IndexRange range;  ///< of the gradient buffer; the first one has the tied region, too
    int leaf = 0;
    int depth = 0;
    long ready_from = 0;
  };

  [[nodiscard]] Chunk& chunk(int index) { return chunks_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] float* accumulator(int depth) const {
    return accumulators_[static_cast<std::size_t>(depth)];
  }
  void combine(const Chunk& chunk, long begin, long end);
  [[nodiscard]] bool is_complete(const Bucket& bucket) const;
  void start_complete_buckets();
  void add_tied_input(long begin, long end);

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
  std::vector<Chunk> chunks_;
  std::vector<Bucket> buckets_;           ///< from the end of the buffer to its front
  std::vector<IndexRange> owned_ranges_;  ///< of the parameters
  std::size_t next_bucket_ = 0;
};

}  // namespace lockstep
