// Linear layers whose weight is cut into blocks: the two ways of splitting a matrix product.
#pragma once

#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "nn/pass.h"

namespace lockstep {

/// A linear layer: weight [out x in] and an optional bias [out], by their indices in the table.
struct LinearParameters {
  int weight = -1;
  int bias = -1;
};

/// Split by output (columns of y): y[:, block w] = x * weight_w^T. The bias is left to the kernel
/// that reads y. y is [tokens x num_blocks * block_rows].
void column_linear_forward(Pass& pass, const LinearParameters& linear, Matrix x, Matrix y);

/// dweight_w (+)= dy_w^T x, dbias_w (+)= sum of dy_w over tokens; dx gets one product a block,
/// dy_w * weight_w, to be tree-summed by its reader, unless it is absent. Of this and the next function
/// the part kInput is dx, which does not read x, kWeight the rest, which does not read the weight.
void column_linear_backward(
    Pass& pass, const LinearParameters& linear, Matrix x, Matrix dy, BlockSum dx);

/// Split by input: y gets one product a block, x[:, block w] * weight_w^T, to be tree-summed by its
/// reader, which also adds the bias.
void row_linear_forward(Pass& pass, const LinearParameters& linear, Matrix x, BlockSum y);

/// dweight_w (+)= dy^T x_w, dbias (+)= sum of dy over tokens, dx[:, block w] = dy * weight_w unless
/// dx is absent.
void row_linear_backward(Pass& pass,
                         const LinearParameters& linear,
                         Matrix x,
                         Matrix dy,
                         Matrix dx,
                         TokenBlocks token_blocks);

/// Room on the pass's stack for one [rows x cols] product a block.
BlockSum push_blocks(Pass& pass, DType dtype, long rows, long cols, int count);

/// The bias of block `block`, or an absent matrix.
Matrix bias_of(const Pass& pass, const LinearParameters& linear, int block);

}  // namespace lockstep
