#include "nn/split_rows.h"

#include <array>
#include <cstddef>
#include <span>

#include "kernels/reduce.h"

namespace lockstep {

BlockSum sum_for_own_rows(Pass& pass,
                          const TensorSplit& split,
                          const BlockSum& products,
                          long seq_length) {
  if (pass.tensor == nullptr) {
    return products;
  }
  if (!split.sequence) {
    return pass.tensor->sum(pass.queue, products);
  }
  const long sequences = products.first.rows / seq_length;
  const Matrix own = pass.scratch().push(
      DType::kF32, sequences * split.own_tokens(seq_length).size(), products.first.cols);
  launch(pass.queue,
         CombineBlocks{.blocks = products,
                       .out = pass.tensor->sum_buffer(products.first.rows, products.first.cols)});
  pass.tensor->sum_rows(pass.queue, seq_length, own);
  return BlockSum(own);
}

Matrix gather_all_rows(Pass& pass, const TensorSplit& split, Matrix x, long seq_length) {
  return split.sequence ? pass.tensor->gather_rows(pass.queue, x, seq_length) : x;
}

namespace {

// A sum over the rank's own tokens, and the gradient that gets the sum over all.
struct TokenSum {
  float* own = nullptr;
  float* gradient = nullptr;
};

void add_token_sums(Pass& pass, std::span<const TokenSum> sums, long size) {
  const auto count = static_cast<long>(sums.size());
  const Matrix buffer = pass.tensor->sum_buffer(count, size);
  for (long i = 0; i < count; ++i) {
    float* const own = sums[static_cast<std::size_t>(i)].own;
    launch(pass.queue,
           CombineBlocks{.blocks = BlockSum(Matrix(own, DType::kF32, 1, size)),
                         .out = buffer.row_range(i, 1)});
  }
  pass.queue.synchronize();
  pass.tensor->sum(count * size);
  for (long i = 0; i < count; ++i) {
    const Matrix gradient(sums[static_cast<std::size_t>(i)].gradient, DType::kF32, 1, size);
    launch(pass.queue,
           CombineBlocks{.blocks = BlockSum(buffer.row_range(i, 1)),
                         .residual = pass.accumulate ? gradient : Matrix{},
                         .out = gradient});
  }
}

}  // namespace

void norm_backward_over_ranks(Pass& pass,
                              const TensorSplit& split,
                              const NormBackward& op,
                              float* dbias_before) {
  if (!split.sequence) {
    launch(pass.queue, op);
    return;
  }
  const StackScope scratch(pass.scratch());
  const long size = op.x.cols;
  std::array<TokenSum, 3> sums;
  std::size_t count = 0;
  const auto add = [&](float* gradient) {
    sums[count] = {pass.scratch().push_array<float>(size), gradient};
    return sums[count++].own;
  };
  if (dbias_before != nullptr) {
    launch(pass.queue,
           ColumnSum{.x = op.dresidual, .out = add(dbias_before), .token_blocks = op.token_blocks});
  }
  NormBackward own = op;
  own.accumulate = false;
  own.dgain = add(op.dgain);
  own.dbias = op.dbias == nullptr ? nullptr : add(op.dbias);
  launch(pass.queue, own);
  add_token_sums(pass, std::span(sums).first(count), size);
}

}  // namespace lockstep
