#include "kernels/cpu/column_sum.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_tasks.h"
#include "kernels/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/column_sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

#ifndef LOCKSTEP_KERNELS_CPU_COLUMN_SUM_ONCE
#define LOCKSTEP_KERNELS_CPU_COLUMN_SUM_ONCE
namespace lockstep {
namespace {

// Rows of a token block that are summed one after the other; the pieces are combined by the tree.
constexpr long kRowsPerPiece = 32;

// Where the rows of the token blocks lie. A block's rows are numbered sequence by sequence.
struct TokenPieces {
  explicit TokenPieces(const ColumnSum& op)
      : blocks(op.token_blocks), sequences(op.x.rows / blocks.seq_length) {
    for (long block = 0; block < blocks.count; ++block) {
      pieces_per_block = std::max(pieces_per_block, pieces(block));
    }
  }

  [[nodiscard]] IndexRange tokens(long block) const { return blocks.tokens_of(block); }
  [[nodiscard]] long rows(long block) const { return sequences * tokens(block).size(); }
  [[nodiscard]] long pieces(long block) const { return ceil_div(rows(block), kRowsPerPiece); }
  [[nodiscard]] long row(long block, long index) const {
    const IndexRange part = tokens(block);
    return index / part.size() * blocks.seq_length + part.begin + index % part.size();
  }

  TokenBlocks blocks;
  long sequences;
  long pieces_per_block = 1;  ///< the most of any block
};

}  // namespace
}  // namespace lockstep
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

// sums = rows of x summed in their order, four at a time to save traffic of the sums.
template <typename T>
void sum_piece_as(
    const ColumnSum& op, const TokenPieces& pieces, long block, long piece, float* sums) {
  const long end = std::min((piece + 1) * kRowsPerPiece, pieces.rows(block));
  std::fill_n(sums, op.x.cols, 0.0F);
  for (long index = piece * kRowsPerPiece; index < end; index += 4) {
    const long count = std::min(4L, end - index);
    std::array<const T*, 4> rows{};
    for (long row = 0; row < count; ++row) {
      rows[static_cast<std::size_t>(row)] = op.x.row<T>(pieces.row(block, index + row));
    }
    for_vectors(0, op.x.cols, [&](long col, auto part) HWY_ATTR {
      auto sum = part.load(sums + col);
      for (long row = 0; row < count; ++row) {
        sum = hn::Add(sum, part.load(rows[static_cast<std::size_t>(row)] + col));
      }
      part.store(sum, sums + col);
    });
  }
}

void sum_piece(
    const ColumnSum& op, const TokenPieces& pieces, long block, long piece, float* sums) {
  if (op.x.dtype == DType::kBF16) {
    sum_piece_as<BFloat16>(op, pieces, block, piece, sums);
  } else {
    sum_piece_as<float>(op, pieces, block, piece, sums);
  }
}

void combine_pieces(const ColumnSum& op,
                    const TokenPieces& pieces,
                    const float* sums,
                    IndexRange cols) {
  for_vectors(cols.begin, cols.end, [&](long col, auto part) HWY_ATTR {
    auto total = tree_sum_of(pieces.blocks.count, [&](long block) HWY_ATTR {
      const float* first = sums + block * pieces.pieces_per_block * op.x.cols + col;
      if (pieces.pieces(block) == 0) {
        return hn::Zero(Floats());
      }
      return tree_sum_of(pieces.pieces(block),
                         [&](long piece) HWY_ATTR { return part.load(first + piece * op.x.cols); });
    });
    if (op.accumulate) {
      total = hn::Add(part.load(op.out + col), total);
    }
    part.store(total, op.out + col);
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(sum_piece);
HWY_EXPORT(combine_pieces);

}  // namespace

std::size_t cpu_column_sum_workspace_bytes(const ColumnSum& op) {
  const TokenPieces pieces(op);
  return static_cast<std::size_t>(pieces.blocks.count * pieces.pieces_per_block * op.x.cols) *
         sizeof(float);
}

void run_on_cpu(CpuQueue& queue, const ColumnSum& op) {
  LOCKSTEP_CHECK(op.x.rows % op.token_blocks.seq_length == 0);
  const TokenPieces pieces(op);
  auto* sums = reinterpret_cast<float*>(queue.workspace(cpu_column_sum_workspace_bytes(op)));
  const long num_pieces = pieces.blocks.count * pieces.pieces_per_block;
  const long step = kElementsPerTask / (op.x.cols * kRowsPerPiece);
  for_ranges(queue.threads(), num_pieces, step, [&](IndexRange range) {
    for (long index = range.begin; index < range.end; ++index) {
      HWY_DYNAMIC_DISPATCH(sum_piece)
      (op,
       pieces,
       index / pieces.pieces_per_block,
       index % pieces.pieces_per_block,
       sums + index * op.x.cols);
    }
  });
  for_ranges(queue.threads(), op.x.cols, kElementsPerTask / num_pieces, [&](IndexRange cols) {
    HWY_DYNAMIC_DISPATCH(combine_pieces)(op, pieces, sums, cols);
  });
}

}  // namespace lockstep
#endif
