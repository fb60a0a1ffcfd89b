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

/// Launches `op`. Of a split sequence its sums over tokens, and where `dbias_before` is not null those of
/// dresidual (the gradient of a bias that was added before the residual), are completed over the ranks
/// first: then `dbias_before` is that gradient. Collective over the tensor group.
void norm_backward_over_ranks(Pass& pass,
                              const TensorSplit& split,
                              const NormBackward& op,
                              float* dbias_before);

}  // namespace lockstep
