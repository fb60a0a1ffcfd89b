// The ranks that share the blocks of split parameters, as layers see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "device/queue.h"
#include "kernels/matmul.h"

namespace lockstep {

/// Sums and gathers of activations over the ranks of a tensor group. All of its functions are
/// collective over the group and wait for the others. Operations and memory are set up once, for
/// the sizes that a dry run found. Sums share one buffer: a result is valid until the next sum.
/// Every size of gather has its own.
///
/// Where tensor ranks outnumber kv heads, those that share one are a group within the group, with one
/// more buffer of a part for each of them.
class TensorGroup {
 public:
  /// Elements of every sum, and floats that a rank contributes to every gather, ascending.
  struct Sizes {
    std::vector<long> sums;
    std::vector<long> gathers;
    /// Of a split sequence.
    struct Rows {
      long sequences = 0;
      long seq_length = 0;
      long cols = 0;
      DType dtype = DType::kF32;
      friend bool operator==(const Rows&, const Rows&) = default;
      [[nodiscard]] long elements() const { return sequences * seq_length * cols; }
    };
    std::vector<Rows> row_sums;
    std::vector<Rows> row_gathers;
    /// Between ranks that share a kv head: elements of a rank's part.
    std::vector<long> shared_sums;
    struct Part {
      long elements = 0;
      DType dtype = DType::kF32;
      friend bool operator==(const Part&, const Part&) = default;
    };
    std::vector<Part> shared_gathers;

    /// Adds those of `other`.
    void merge(const Sizes& other);
  };

  /// Finds out the sizes: for a group on the dry communicator, whose memory is never touched.
  /// `dry_sharing`: the ranks that share a kv head with this one, null if none does.
  explicit TensorGroup(Communicator& dry_group, Communicator* dry_sharing = nullptr);
  /// Takes the memory for `sizes`: 4 bytes times the largest sum, and times the ranks and every
  /// gather; between ranks that share a kv head the largest exchange. Collective.
  TensorGroup(Communicator& group, Communicator* sharing, const Sizes& sizes);

  [[nodiscard]] int rank() const { return group_->rank(); }
  [[nodiscard]] int size() const { return group_->size(); }
  [[nodiscard]] const Sizes& sizes() const { return sizes_; }

  /// The buffer of sums, f32 [rows x cols]; its contents are this rank's contribution to `sum`.
  [[nodiscard]] Matrix sum_buffer(long rows, long cols) const;
  /// Replaces the first `elements` of the buffer by their sums over the ranks, in f32, in the order of
  /// the aligned tree.
  void sum(long elements);
  /// The tree sum of the products of all blocks of all ranks: f32 in the buffer.
  BlockSum sum(Queue& queue, const BlockSum& products);

  /// As `sum` of the buffer for [sequences * seq_length x cols], but of each sequence only the tokens
  /// part_of(seq_length, size, rank) are summed up and copied, f32, to `own`, one after the other.
  void sum_rows(Queue& queue, long seq_length, Matrix own);
  /// The rows of all ranks of a matrix of which every rank has its tokens, as `sum_rows` leaves
  /// them: [sequences * seq_length x cols]. Valid until the next call.
  Matrix gather_rows(Queue& queue, Matrix own, long seq_length);

  /// Where this rank writes `count` floats for `gather`.
  [[nodiscard]] float* gather_part(long count);
  /// count floats of every rank, rank after rank.
  const float* gather(long count);

  /// Own rank among those that share a kv head.
  [[nodiscard]] int shared_rank() const { return sharing_->rank(); }
  /// The part of one of them in the buffer of the two below, [rows x cols]; parts follow each other.
  [[nodiscard]] Matrix shared_part(int sharing_rank, DType dtype, long rows, long cols) const;
  /// Fills the parts of the others, each of `elements`, from theirs.
  void gather_shared(DType dtype, long elements);
  /// The own part becomes the sum over the ranks, in f32, in the order of the aligned tree; the others
  /// are undefined.
  void sum_shared(long elements);

 private:
  enum class Kind : std::uint8_t { kSum, kGather, kSharedSum };
  struct Prepared {
    long size = 0;
    Memory memory;  ///< of a gather
    std::unique_ptr<Operation> operation;
  };

  Prepared& find(std::vector<Prepared>& prepared, long size, Kind kind);
  Prepared make(long size, Kind kind);
  struct PreparedPart {
    Sizes::Part part;
    std::unique_ptr<Operation> operation;
  };
  PreparedPart make_shared_gather(const Sizes::Part& part);
  struct PreparedRows {
    Sizes::Rows rows;
    std::vector<std::unique_ptr<Operation>> operations;  ///< one a sequence
  };
  PreparedRows& find_rows(std::vector<PreparedRows>& prepared,
                          const Sizes::Rows& rows,
                          bool is_sum);
  PreparedRows make_rows(const Sizes::Rows& rows, bool is_sum);
  static void run_all(const std::vector<std::unique_ptr<Operation>>& operations);

  Communicator* group_;
  Communicator* sharing_;
  bool measures_;
  Sizes sizes_;
  Memory sums_;
  Memory rows_;    ///< of gather_rows
  Memory shared_;  ///< of exchanges between ranks that share a kv head
  std::vector<Prepared> sum_operations_;
  std::vector<Prepared> gather_operations_;
  std::vector<PreparedRows> row_sum_operations_;
  std::vector<PreparedRows> row_gather_operations_;
  std::vector<Prepared> shared_sum_operations_;
  std::vector<PreparedPart> shared_gather_operations_;
};

}  // namespace lockstep
