#include "nn/shared_heads.h"

#include <algorithm>

#include "base/function_ref.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

/// Heads, how they are split, and what a block of all blocks has of a kv head.
class Sharing {
 public:
  Sharing(const HeadSplit& heads, const TensorSplit& split)
      : heads_(heads), local_blocks_(split.local_blocks()) {}

  [[nodiscard]] bool crosses_ranks() const { return heads_.sharers() > local_blocks_; }
  /// Columns of keys and of values that a block stores, padding included.
  [[nodiscard]] long stored() const { return 2 * heads_.key_columns_per_block(); }
  /// Those of all blocks of a rank.
  [[nodiscard]] long stored_by_rank() const { return local_blocks_ * stored(); }

  /// The keys and values of a local block in a q, k, v matrix of all local blocks.
  [[nodiscard]] Matrix own_in(Matrix qkv, int local_block) const {
    const long all = qkv.cols / local_blocks_;
    return qkv.columns((local_block + 1) * all - stored(), stored());
  }
  /// Those of one of the blocks that share a kv head in the buffer of the group.
  [[nodiscard]] Matrix own_in(const TensorGroup& group, int sharer, DType dtype, long rows) const {
    return group.shared_part(sharer / local_blocks_, dtype, rows, stored_by_rank())
        .columns(sharer % local_blocks_ * stored(), stored());
  }

  /// Calls use(own, whole) for the keys and for the values that `block` has: as they stand in
  /// its own columns, and in those of the whole head.
  void visit(int block,
             Matrix own,
             Matrix whole,
             FunctionRef<void(Matrix own, Matrix whole)> use) const {
    const IndexRange columns = heads_.key_columns_in(block);
    if (columns.size() > 0) {
      use(own.columns(0, columns.size()), whole.columns(columns.begin, columns.size()));
      use(own.columns(heads_.key_columns_per_block(), columns.size()),
          whole.columns(heads_.head_dim + columns.begin, columns.size()));
    }
  }

 private:
  const HeadSplit& heads_;
  int local_blocks_;
};

void copy(Pass& pass, Matrix from, Matrix to) {
  launch(pass.queue, CombineBlocks{.blocks = BlockSum(from), .out = to});
}

}  // namespace

long shared_heads_of(const HeadSplit& heads, const TensorSplit& split) {
  return std::max(1, split.local_blocks() / heads.sharers());
}

SharedHead shared_head_of(const HeadSplit& heads, Matrix key_values, int local_block) {
  const long head = local_block / heads.sharers();  // 0 where the rank has fewer blocks
  const Matrix whole = key_values.columns(head * 2 * heads.head_dim, 2 * heads.head_dim);
  return {.both = whole,
          .key = whole.columns(0, heads.head_dim),
          .value = whole.columns(heads.head_dim, heads.head_dim)};
}

void gather_shared_heads(
    Pass& pass, const HeadSplit& heads, const TensorSplit& split, Matrix qkv, Matrix key_values) {
  const Sharing sharing(heads, split);
  const auto copy_to_whole = [&](Matrix own, Matrix whole) { copy(pass, own, whole); };
  if (!sharing.crosses_ranks()) {
    for (int block = 0; block < split.local_blocks(); ++block) {
      const Matrix whole = shared_head_of(heads, key_values, block).both;
      sharing.visit(block, sharing.own_in(qkv, block), whole, copy_to_whole);
    }
    return;
  }
  TensorGroup& group = *pass.tensor;
  const int first = group.shared_rank() * split.local_blocks();
  for (int block = 0; block < split.local_blocks(); ++block) {
    copy(pass,
         sharing.own_in(qkv, block),
         sharing.own_in(group, first + block, qkv.dtype, qkv.rows));
  }
  group.gather_shared(qkv.dtype, qkv.rows * sharing.stored_by_rank());
  for (int block = 0; block < heads.sharers(); ++block) {
    const Matrix own = sharing.own_in(group, block, qkv.dtype, qkv.rows);
    sharing.visit(block, own, key_values, copy_to_whole);
  }
}

void scatter_shared_heads(Pass& pass,
                          const HeadSplit& heads,
                          const TensorSplit& split,
                          const BlockSum& gradients,
                          Matrix dqkv) {
  const Sharing sharing(heads, split);
  const int count = std::min(heads.sharers(), split.local_blocks());
  const auto sum_to_own = [&](Matrix own, Matrix whole) {
    launch(pass.queue,
           CombineBlocks{.blocks = BlockSum(whole, count, gradients.stride), .out = own});
  };
  if (!sharing.crosses_ranks()) {
    for (int block = 0; block < split.local_blocks(); ++block) {
      const Matrix first = gradients.block(block / count * count);
      sharing.visit(block, sharing.own_in(dqkv, block), first, sum_to_own);
    }
    return;
  }
  TensorGroup& group = *pass.tensor;
  const long elements = dqkv.rows * sharing.stored_by_rank();
  if (heads.is_padded()) {
    const Matrix all = group.shared_part(0, DType::kF32, heads.sharers() / count, elements);
    launch(pass.queue, FillZero{.data = all.data, .bytes = all.bytes()});
  }
  for (int block = 0; block < heads.sharers(); ++block) {
    const Matrix own = sharing.own_in(group, block, DType::kF32, dqkv.rows);
    sharing.visit(block, own, gradients.first, sum_to_own);
  }
  group.sum_shared(elements);
  const int first = group.shared_rank() * split.local_blocks();
  for (int block = 0; block < split.local_blocks(); ++block) {
    copy(pass,
         sharing.own_in(group, first + block, DType::kF32, dqkv.rows),
         sharing.own_in(dqkv, block));
  }
}

}  // namespace lockstep
