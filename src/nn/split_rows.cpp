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

constexpr std::size_t kMostSums = 3;

// gradient (+)= sum, as a kernel adds what it has finished.
void add_to_gradient(Pass& pass, Matrix sum, float* gradient) {
  const Matrix out(gradient, DType::kF32, 1, sum.cols);
  launch(pass.queue,
         CombineBlocks{
             .blocks = BlockSum(sum), .residual = pass.accumulate ? out : Matrix{}, .out = out});
}

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
  pass.tensor->sum(count * size);
  for (long i = 0; i < count; ++i) {
    add_to_gradient(pass, buffer.row_range(i, 1), sums[static_cast<std::size_t>(i)].gradient);
  }
}

// The norm of a split sequence, whose sums go to the gradients that `op` names, and that of dbefore to
// `dbias_before`.
void launch_over_ranks(Pass& pass, const NormBackward& op, Matrix dbefore, float* dbias_before) {
  const long size = op.x.cols;
  std::array<TokenSum, kMostSums> sums;
  std::size_t count = 0;
  const auto add = [&](float* gradient) {
    sums[count] = {pass.scratch().push_array<float>(size), gradient};
    return sums[count++].own;
  };
  if (dbias_before != nullptr) {
    launch(pass.queue,
           ColumnSum{.x = dbefore, .out = add(dbias_before), .token_blocks = op.token_blocks});
  }
  NormBackward own = op;
  own.accumulate = false;
  own.dgain = add(op.dgain);
  own.dbias = op.dbias == nullptr ? nullptr : add(op.dbias);
  launch(pass.queue, own);
  add_token_sums(pass, std::span(sums).first(count), size);
}

float* late_sum(const NormSums& sums, std::size_t index, long size) {
  return sums.late + static_cast<long>(index) * size;
}

}  // namespace

float* push_late_sums(Pass& pass, long size) {
  return pass.stack.push_array<float>(static_cast<long>(kMostSums) * size);
}

void norm_backward_over_ranks(
    Pass& pass, const TensorSplit& split, NormBackward op, const NormSums& sums, long seq_length) {
  const long size = op.x.cols;
  const std::array<int, kMostSums> parameters{sums.gain, sums.bias, sums.bias_before};
  std::array<float*, kMostSums> to{};
  for (std::size_t i = 0; i < kMostSums; ++i) {
    if (parameters[i] < 0) {
      continue;
    }
    if (pass.part == BackwardPart::kInput) {
      to[i] = late_sum(sums, i, size);
      continue;
    }
    to[i] = pass.gradients.vector(parameters[i]);
    if (pass.part == BackwardPart::kWeight) {
      add_to_gradient(pass, Matrix(late_sum(sums, i, size), DType::kF32, 1, size), to[i]);
    }
  }
  if (!pass.finds_inputs()) {
    return;
  }
  const StackScope scratch(pass.scratch());
  op.dy = sum_for_own_rows(pass, split, op.dy, seq_length);
  op.dgain = to[0];
  op.dbias = to[1];
  op.accumulate = pass.accumulate;
  if (split.sequence) {
    launch_over_ranks(pass, op, sums.dbefore, to[2]);
  } else {
    launch(pass.queue, op);
  }
}

}  // namespace lockstep
