#include "nn/linear.h"

#include "kernels/reduce.h"

namespace lockstep {
namespace {

int blocks_of(const Pass& pass, int parameter) {
  return pass.weights.table()[parameter].num_blocks;
}

}  // namespace

Matrix bias_of(const Pass& pass, const LinearParameters& linear, int block) {
  return linear.bias < 0 ? Matrix{} : pass.weights.block(linear.bias, block);
}

BlockSum push_blocks(Pass& pass, DType dtype, long rows, long cols, int count) {
  const Matrix all = pass.scratch().push(dtype, rows * count, cols);
  return {all.row_range(0, rows), count, rows * cols};
}

void column_linear_forward(Pass& pass, const LinearParameters& linear, Matrix x, Matrix y) {
  for (int block = 0; block < blocks_of(pass, linear.weight); ++block) {
    const Matrix weight = pass.weights.block(linear.weight, block);
    launch(pass.queue,
           MatMul{.a = x,
                  .b = weight,
                  .transpose_b = true,
                  .c = y.columns(block * weight.rows, weight.rows)});
  }
}

void column_linear_backward(
    Pass& pass, const LinearParameters& linear, Matrix x, Matrix dy, BlockSum dx) {
  for (int block = 0; block < blocks_of(pass, linear.weight); ++block) {
    const Matrix weight = pass.weights.block(linear.weight, block);
    const Matrix dy_block = dy.columns(block * weight.rows, weight.rows);
    if (pass.finds_inputs() && dx.first) {
      launch(pass.queue, MatMul{.a = dy_block, .b = weight, .c = dx.block(block)});
      pass.poll();
    }
    if (!pass.finds_weights()) {
      continue;
    }
    launch(pass.queue,
           MatMul{.a = dy_block,
                  .transpose_a = true,
                  .b = x,
                  .c = pass.gradients.block(linear.weight, block),
                  .accumulate = pass.accumulate});
    if (linear.bias >= 0) {
      launch(pass.queue,
             ColumnSum{.x = dy_block,
                       .out = pass.gradients.vector(linear.bias, block),
                       .accumulate = pass.accumulate,
                       .token_blocks = {.seq_length = dy.rows}});
    }
  }
}

void row_linear_forward(Pass& pass, const LinearParameters& linear, Matrix x, BlockSum y) {
  for (int block = 0; block < blocks_of(pass, linear.weight); ++block) {
    const Matrix weight = pass.weights.block(linear.weight, block);
    launch(pass.queue,
           MatMul{.a = x.columns(block * weight.cols, weight.cols),
                  .b = weight,
                  .transpose_b = true,
                  .c = y.block(block)});
  }
}

void row_linear_backward(Pass& pass,
                         const LinearParameters& linear,
                         Matrix x,
                         Matrix dy,
                         Matrix dx,
                         TokenBlocks token_blocks) {
  for (int block = 0; block < blocks_of(pass, linear.weight); ++block) {
    const Matrix weight = pass.weights.block(linear.weight, block);
    const long first = block * weight.cols;
    if (pass.finds_inputs() && dx) {
      launch(pass.queue, MatMul{.a = dy, .b = weight, .c = dx.columns(first, weight.cols)});
      pass.poll();
    }
    if (pass.finds_weights()) {
      launch(pass.queue,
             MatMul{.a = dy,
                    .transpose_a = true,
                    .b = x.columns(first, weight.cols),
                    .c = pass.gradients.block(linear.weight, block),
                    .accumulate = pass.accumulate});
    }
  }
  if (pass.finds_weights() && linear.bias >= 0) {
    launch(pass.queue,
           ColumnSum{.x = dy,
                     .out = pass.gradients.vector(linear.bias),
                     .accumulate = pass.accumulate,
                     .token_blocks = token_blocks});
  }
}

}  // namespace lockstep
