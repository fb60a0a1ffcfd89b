#include "kernels/attention.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "base/error.h"
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/backend.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

/// The running softmax of a block of queries.
struct Softmax {
  HWY_ALIGN float max[kBlock];
  HWY_ALIGN float sum[kBlock];
  HWY_ALIGN float decay[kBlock];  // by which earlier sums shrink when a larger score was found
};

// scores[key, query] become probabilities relative to the largest score so far.
HWY_INLINE void add_to_softmax(
    bool on_diagonal, long keys, long queries, float* scores, Softmax* softmax) {
  for (long query = 0; query < queries; query += kLanes) {
    float* column = scores + query;
    const VisibleKeys visible = visible_keys(on_diagonal, query, keys);
    const VecF32 hidden = splat(-std::numeric_limits<float>::infinity());
    for (long key = visible.open; key < visible.end; ++key) {
      const VecF32 score = hn::LoadU(kF32Tag, column + key * kBlock);
      hn::StoreU(
          hn::IfThenElse(before_key(key - query), hidden, score), kF32Tag, column + key * kBlock);
    }

    const VecF32 old_max = hn::LoadU(kF32Tag, softmax->max + query);
    VecF32 max = old_max;
    VecF32 max1 = hidden;
    long key = 0;
    for (; key + 2 <= visible.end; key += 2) {
      max = hn::Max(max, hn::LoadU(kF32Tag, column + key * kBlock));
      max1 = hn::Max(max1, hn::LoadU(kF32Tag, column + (key + 1) * kBlock));
    }
    if (key < visible.end) {
      max = hn::Max(max, hn::LoadU(kF32Tag, column + key * kBlock));
    }
    max = hn::Max(max, max1);

    VecF32 sum = hn::Zero(kF32Tag);
    VecF32 sum1 = sum;
    for (key = 0; key + 2 <= visible.end; key += 2) {
      float* at = column + key * kBlock;
      const VecF32 even = exponential_up_to_88(hn::Sub(hn::LoadU(kF32Tag, at), max));
      const VecF32 odd = exponential_up_to_88(hn::Sub(hn::LoadU(kF32Tag, at + kBlock), max));
      hn::StoreU(even, kF32Tag, at);
      hn::StoreU(odd, kF32Tag, at + kBlock);
      sum = hn::Add(sum, even);
      sum1 = hn::Add(sum1, odd);
    }
    if (key < visible.end) {
      float* at = column + key * kBlock;
      const VecF32 even = exponential_up_to_88(hn::Sub(hn::LoadU(kF32Tag, at), max));
      hn::StoreU(even, kF32Tag, at);
      sum = hn::Add(sum, even);
    }
    const VecF32 decay = exponential_up_to_88(hn::Sub(old_max, max));
    const VecF32 old_sum = hn::LoadU(kF32Tag, softmax->sum + query);
    hn::StoreU(max, kF32Tag, softmax->max + query);
    hn::StoreU(hn::MulAdd(old_sum, decay, hn::Add(sum, sum1)), kF32Tag, softmax->sum + query);
    hn::StoreU(decay, kF32Tag, softmax->decay + query);
  }
}

// scores[key, query] *= factors[key, query], where the query sees the key.
HWY_INLINE void apply_factors(
    bool on_diagonal, long keys, long queries, const float* factors, float* scores) {
  for (long query = 0; query < queries; query += kLanes) {
    const VisibleKeys visible = visible_keys(on_diagonal, query, keys);
    for (long key = 0; key < visible.end; ++key) {
      float* at = scores + key * kBlock + query;
      const VecF32 factor = hn::LoadU(kF32Tag, factors + key * kBlock + query);
      hn::StoreU(hn::Mul(hn::LoadU(kF32Tag, at), factor), kF32Tag, at);
    }
  }
}

/// A block of queries of one head: views of their rows and of the head's keys and values.
struct QueryBlock {
  long first = 0;    // its first query
  long queries = 0;  // at most kBlock
  Matrix q;
  Matrix k;
  Matrix v;
  Matrix out;
  float* log_sum_exp = nullptr;
  const HeadDropout* dropout = nullptr;  // null: none
};

// result[d, query] /= sum of its probabilities; log_sum_exp of the block.
HWY_INLINE void finish_softmax(const QueryBlock& block,
                               long head_dim,
                               const Softmax& softmax,
                               float* result) {
  for (long query = 0; query < block.queries; query += kLanes) {
    const VecF32 sum = hn::Load(kF32Tag, softmax.sum + query);
    const VecF32 factor = hn::Div(splat(1.0F), sum);
    for (long d = 0; d < head_dim; ++d) {
      float* at = result + d * kBlock + query;
      hn::StoreU(hn::Mul(hn::LoadU(kF32Tag, at), factor), kF32Tag, at);
    }
  }
  if (block.log_sum_exp == nullptr) {
    return;
  }
  for_each_vector(block.queries, [&](long query, auto lanes) HWY_ATTR {
    const VecF32 sum = hn::Load(kF32Tag, softmax.sum + query);
    const VecF32 max = hn::Load(kF32Tag, softmax.max + query);
    store(hn::Add(max, hn::Log(kF32Tag, sum)), block.log_sum_exp + query, lanes);
  });
}

template <typename T>
void forward_block(const QueryBlock& block, long head_dim) {
  HWY_ALIGN float rows[kBlockElements];     // packed keys; before and after: queries, result
  HWY_ALIGN float values[kBlockElements];   // [keys x head_dim]
  HWY_ALIGN float queries[kBlockElements];  // [head_dim x queries]
  HWY_ALIGN float result[kBlockElements];   // [head_dim x queries]
  HWY_ALIGN float scores[kBlock * kBlock];  // [keys x queries]
  HWY_ALIGN float factors[kBlock * kBlock];
  Softmax softmax;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  const long padded = padded_head_dim(head_dim);
  const long lanes = round_up(block.queries, kLanes);
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  pack_rows(block.q.as<T>(), block.q.stride, block.queries, head_dim, scale, rows);
  clear_rows_from(block.queries, head_dim, rows);
  transpose(rows, padded, kBlock, padded, queries, kBlock);
  std::fill_n(result, padded * kBlock, 0.0F);
  std::fill_n(softmax.max, kBlock, -std::numeric_limits<float>::infinity());
  std::fill_n(softmax.sum, kBlock, 0.0F);

  for (long first_key = 0; first_key <= block.first; first_key += kBlock) {
    const bool on_diagonal = first_key == block.first;
    const long keys = on_diagonal ? block.queries : kBlock;
    pack_rows(block.k.row<T>(first_key), block.k.stride, keys, head_dim, 1.0F, rows);
    pack_rows(block.v.row<T>(first_key), block.v.stride, keys, head_dim, 1.0F, values);
    for_each_segment(on_diagonal, keys, [&](KeySegment segment) HWY_ATTR {
      Product product;
      product.x = rows + segment.begin * padded;
      product.x_row = padded;
      product.y = queries + segment.first_query;
      product.y_inner = kBlock;
      product.c = scores + segment.begin * kBlock + segment.first_query;
      product.c_row = kBlock;
      product.rows = segment.end - segment.begin;
      product.inner = head_dim;
      product.lanes = lanes - segment.first_query;
      multiply(product);
    });
    add_to_softmax(on_diagonal, keys, block.queries, scores, &softmax);
    if (block.dropout != nullptr) {
      fill_factors(*block.dropout,
                   {block.first, block.first + block.queries},
                   {first_key, first_key + keys},
                   on_diagonal,
                   factors);
      apply_factors(on_diagonal, keys, block.queries, factors, scores);
    }
    for_each_segment(on_diagonal, keys, [&](KeySegment segment) HWY_ATTR {
      Product product;
      product.x = values + segment.begin * padded;
      product.x_row = 1;
      product.x_inner = padded;
      product.y = scores + segment.begin * kBlock + segment.first_query;
      product.y_inner = kBlock;
      product.c = result + segment.first_query;
      product.c_row = kBlock;
      product.rows = head_dim;
      product.inner = segment.end - segment.begin;
      product.lanes = lanes - segment.first_query;
      product.start = segment.begin == 0 ? Start::kScaledResult : Start::kResult;
      product.scale = softmax.decay;
      multiply(product);
    });
  }
  finish_softmax(block, head_dim, softmax, result);
  transpose(result, kBlock, padded, kBlock, rows, padded);
  unpack_rows(rows, block.queries, head_dim, block.out.as<T>(), block.out.stride);
}

template <typename T>
void forward_task(const AttentionForward& op, long task) {
  const AttentionShape& shape = op.shape;
  const long blocks = ceil_div(shape.seq_length, kBlock);
  // The longest blocks come first, so that threads finish together.
  const long block_index = blocks - 1 - task / (shape.batch * shape.heads);
  const long head = task % shape.heads;
  const long batch = task / shape.heads % shape.batch;
  const long kv_head = head / (shape.heads / shape.kv_heads);
  const long head_dim = shape.head_dim;
  const long sequence = batch * shape.seq_length;

  QueryBlock block;
  block.first = block_index * kBlock;
  block.queries = std::min(kBlock, shape.seq_length - block.first);
  block.q =
      op.q.columns(head * head_dim, head_dim).row_range(sequence + block.first, block.queries);
  block.out =
      op.out.columns(head * head_dim, head_dim).row_range(sequence + block.first, block.queries);
  block.k = op.k.columns(kv_head * head_dim, head_dim).row_range(sequence, shape.seq_length);
  block.v = op.v.columns(kv_head * head_dim, head_dim).row_range(sequence, shape.seq_length);
  if (op.log_sum_exp != nullptr) {
    block.log_sum_exp =
        op.log_sum_exp + (batch * shape.heads + head) * shape.seq_length + block.first;
  }
  const HeadDropout dropout = head_dropout(op.dropout, batch, head);
  block.dropout = op.dropout.source.drops() ? &dropout : nullptr;
  forward_block<T>(block, head_dim);
}

void attention_forward(CpuQueue& queue, const AttentionForward& op) {
  const long tasks = op.shape.batch * op.shape.heads * ceil_div(op.shape.seq_length, kBlock);
  queue.threads().run(tasks, [&op](long task) {
    if (op.q.dtype == DType::kBF16) {
      forward_task<BFloat16>(op, task);
    } else {
      forward_task<float>(op, task);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(attention_forward);
}  // namespace

void run_on_cpu(CpuQueue& queue, const AttentionForward& op) {
  LOCKSTEP_CHECK(op.shape.head_dim <= kMaxHeadDim);
  HWY_DYNAMIC_DISPATCH(attention_forward)(queue, op);
}

}  // namespace lockstep
#endif
