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
#include "parallel/unit_slots.h"
#include "parallel/virtual_layout.h"

namespace lockstep {

/// Where the sums of a step stand: element `flat` of the parameters and the count - 1 behind it, at
/// `offset` of the result.
struct GradientPiece {
  long flat = 0;
  long offset = 0;
  long count = 0;
};

/// Two orders of the same sums (parallel.accumulate):
/// - fold-tree: a virtual rank's micro-batches are folded in index order into one of log2(n) + 1 flat
///   accumulators for the n virtual ranks of this rank; accumulators are combined by the aligned tree
///   as soon as both sides exist; the rank's sum is reduced over the real ranks once.
/// - tree-fold: the r-th micro-batches of all virtual ranks are combined by the tree and reduced, and
///   these rounds are folded. One more buffer, of what the rank owns.
/// Buckets are reduced in the order in which a backward pass completes them: to every rank, or from ZeRO
/// stage 1 on to the rank that owns a slice.
///
/// From stage 2 on, where a rank has one virtual rank and no more than one micro-batch of it is summed up
/// before a reduction (tree-fold, or one micro-batch a step), no buffer holds all gradients: units take
/// turns in a few slots, are reduced, and what the rank owns is kept.
///
/// The parts of the model on this rank (chunks) go through rounds and virtual ranks each at its own pace,
/// but every rank of the data group in the same order. In a step, for each chunk, each round (one with
/// fold-tree) and each owned virtual rank in order: `begin_leaf`, its passes on `gradients()` (the last one
/// with `ready` as its callback), `end_leaf`; then `finish`.
class GradientReducer {
 public:
  /// `chunks`: elements of the parameters of each chunk, ascending. `one_micro_batch`: a virtual rank has
  /// never more than one a step. Collective.
  GradientReducer(const ParameterTable& table,
                  const std::vector<IndexRange>& chunks,
                  const VirtualLayout& layout,
                  const ParallelConfig& config,
                  bool one_micro_batch,
                  Communicator& data_group,
                  Queue& queue);

  void begin_leaf(int chunk, int owned_index);
  /// Where the passes of the chunk's current virtual rank accumulate.
  [[nodiscard]] Gradients gradients(int chunk) const;
  /// Before the gradients of `unit` (units().size(): the tied input side) are written.
  void enter(int unit);
  /// The chunk's elements from `first` on are complete for its current virtual rank: combines them with
  /// the accumulators before it, and starts the buckets that are complete.
  void ready(int chunk, long first);
  /// Lets what was started in the data group and in related ones (Communicator) progress. Cheap.
  void poll();
  /// Of a virtual rank without a micro-batch: its part of the sums of `unit`, in the order of a backward
  /// pass, where others wait for it. end_leaf does what is left.
  void contribute_zeros(int chunk, int unit);
  /// Ends the chunk's current virtual rank; `empty`: it had no micro-batch and counts as zeros.
  void end_leaf(int chunk, bool empty);

  /// Waits for all reductions and adds the input side of a tied embedding. The result is the sum
  /// over the global batch of all ranks (of what this rank owns, from stage 1 on; the rest is
  /// undefined), and stays until the next begin_leaf.
  void finish();
  /// Gradients of the parameters (the tied region is left out): pieces() says where each is.
  [[nodiscard]] float* result() const { return result_; }
  [[nodiscard]] const std::vector<GradientPiece>& pieces() const { return pieces_; }
  /// Elements of the parameters of which the result holds sums.
  [[nodiscard]] const std::vector<IndexRange>& owned() const { return owned_ranges_; }
  /// Whether the result holds what the rank owns and nothing else.
  [[nodiscard]] bool is_packed() const { return collects_ && scatters_; }

  [[nodiscard]] std::size_t accumulator_bytes() const;
  /// Of these, what was taken from the data group.
  [[nodiscard]] std::size_t shared_bytes() const { return root_memory_.bytes(); }
  [[nodiscard]] int num_accumulators() const { return static_cast<int>(accumulators_.size()); }

 private:
  struct Bucket {
    IndexRange range;  ///< of the gradient buffer
    int unit = 0;
    float* data = nullptr;  ///< where it is reduced
    IndexRange own;         ///< of the gradient buffer: what this rank keeps
    float* kept = nullptr;  ///< where, if it collects
    std::unique_ptr<Operation> reduction;
    bool is_pending = false;  ///< started, and not yet kept
  };
  struct Chunk {
    IndexRange range;  ///< of the gradient buffer; the first one has the tied region, too
    int leaf = 0;
    int depth = 0;
    long ready_from = 0;
    bool is_first_round = true;
    bool ends_round = false;      ///< its sums are complete and were not kept yet
    std::vector<Bucket> buckets;  ///< from the end of the buffer to its front
    std::size_t next_bucket = 0;
  };

  [[nodiscard]] Chunk& chunk(int index) { return chunks_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] float* accumulator(int depth) const {
    return accumulators_[static_cast<std::size_t>(depth)];
  }
  void take_accumulators();
  void take_slots();
  void make_buckets_of_chunks(const std::vector<IndexRange>& buckets, Reduction reduction);
  void plan_result();
  [[nodiscard]] int unit_of(long element) const;
  [[nodiscard]] long begin_of_unit(int unit) const;
  [[nodiscard]] float* reduced_at(const IndexRange& range) const;
  void combine(const Chunk& chunk, long begin, long end);
  void start_complete_buckets(Chunk& chunk);
  void keep(Chunk& chunk, Bucket& bucket);
  void keep_all(Chunk& chunk);
  void add_tied_input();
  void add_tied_slice(const Chunk& chunk, const Bucket& region);
  void add(float* to, const float* values, long count, bool overwrites);

  const ParameterTable* table_;
  Queue* queue_;
  Communicator* group_;
  long tied_size_;
  long size_;
  int owned_;
  bool overlap_;
  bool scatters_;  ///< a rank gets what it owns only
  bool collects_;  ///< sums of rounds are kept apart from where gradients are written
  bool slotted_;   ///< gradients stand in slots
  Memory root_memory_;
  Memory other_memory_;
  Memory kept_memory_;
  std::vector<float*> accumulators_;
  UnitSlots slots_;
  std::vector<float*> unit_bases_;  ///< with slots; the last is the tied input side
  std::vector<Chunk> chunks_;
  std::vector<IndexRange> owned_ranges_;  ///< of the parameters
  std::vector<GradientPiece> pieces_;
  float* result_ = nullptr;
};

}  // namespace lockstep
