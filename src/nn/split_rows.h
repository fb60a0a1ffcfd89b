// Between the part of a model that is split by columns and the part that is split by tokens or not at
// all: what has to be exchanged there.
#pragma once

#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "nn/pass.h"

namespace lockstep {

/// The tree sum of the products of all blocks, for the rows that norms and residuals of this rank work
/// on: `products` as they are where the rank has all blocks; else in f32, in the group's buffer or, of a
/// split sequence, pushed on the stack. Collective over the tensor group.
BlockSum sum_for_own_rows(Pass& pass,
                          const TensorSplit& split,
                          const BlockSum& products,
                          long seq_length);

/// All rows of a matrix of which the rank has its own: x itself unless sequences are split, else valid
/// until the next call. Collective over the tensor group.
Matrix gather_all_rows(Pass& pass, const TensorSplit& split, Matrix x, long seq_length);

/// The parameters whose gradients are sums over tokens that are found with the gradient of a norm's input,
/// by their indices in the table; -1: none.
struct NormSums {
  int gain = -1;
  int bias = -1;
  /// Of a split sequence: a bias that was added before the residual; the sum is that of `dbefore`.
  int bias_before = -1;
  /// The gradient of what joined the residual: dresidual, unless some of it was dropped.
  Matrix dbefore;
  /// Where the input part of a backward pass leaves the sums to the weight part.
  float* late = nullptr;
};

/// Room for `late` on the micro-batch's stack, for a norm over `size` features.
float* push_late_sums(Pass& pass, long size);

/// Launches `op`, whose dy has one product a block for all rows (it is summed up here), and adds the sums
/// over tokens, over the ranks of a split sequence, to the gradients. op.dgain, op.dbias and op.accumulate
/// are left alone by the caller. In the weight part only what the input part left in `late` is added.
/// Collective over the tensor group, but for the weight part.
void norm_backward_over_ranks(
    Pass& pass, const TensorSplit& split, NormBackward op, const NormSums& sums, long seq_length);

}  // namespace lockstep
