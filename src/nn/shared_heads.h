// Key and value heads of which several tensor blocks compute columns: put together before attention,
// and their gradients summed and taken apart after it.
#pragma once

#include "kernels/matmul.h"
#include "nn/head_split.h"
#include "nn/pass.h"

namespace lockstep {

/// The kv heads that this rank's blocks read.
long shared_heads_of(const HeadSplit& heads, const TensorSplit& split);

/// The key and the value of the kv head that `local_block` reads, in what gather_shared_heads fills.
struct SharedHead {
  Matrix both;
  Matrix key;
  Matrix value;
};
SharedHead shared_head_of(const HeadSplit& heads, Matrix key_values, int local_block);

/// key_values [rows x shared_heads_of * 2 head_dim] gets key and value, side by side, of every kv head
/// that blocks of this rank read, from the columns of keys and values (in this order, at the end of each
/// block's) in qkv [rows x local blocks * columns]. Collective over the tensor group. Cost: between ranks
/// each sends its columns to the others that share its kv head.
void gather_shared_heads(
    Pass& pass, const HeadSplit& heads, const TensorSplit& split, Matrix qkv, Matrix key_values);

/// The way back: `gradients` has a [rows x 2 head_dim] for every local block, what its query heads add to
/// the gradient of their key and value. The tree sum over the blocks that share a kv head goes, in the
/// columns that each block has, to dqkv, whose padding is zero and stays so. Collective over the tensor
/// group.
/// Cost: between ranks each sends, in f32, the others' columns.
void scatter_shared_heads(Pass& pass,
                          const HeadSplit& heads,
                          const TensorSplit& split,
                          const BlockSum& gradients,
                          Matrix dqkv);

}  // namespace lockstep
