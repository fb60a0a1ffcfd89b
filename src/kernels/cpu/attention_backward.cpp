#include <cmath>
#include <limits>

#include "kernels/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/highway.h>

#include "base/error.h"
#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/backend.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

/// f32 sums of the gradients of the keys and values of one kv head, [seq_length x head_dim].
struct KeyGradients {
  float* dk = nullptr;
  long dk_row = 0;
  float* dv = nullptr;
  long dv_row = 0;
};

/// Rows of one head's block of queries.
struct QueryRows {
  long first = 0;
  long queries = 0;
  Matrix q;
  Matrix out;
  Matrix dout;
  Matrix dq;
  const float* log_sum_exp = nullptr;
  const HeadDropout* dropout = nullptr;  // null: none
};

/// Rows of the kv head of a sequence.
struct KeyRows {
  Matrix k;
  Matrix v;
};

/// What a block of queries needs for every block of keys. [rows x head_dim] and transposed.
struct QueryTiles {
  HWY_ALIGN float q[kBlockElements];  // scaled by 1 / sqrt(head_dim)
  HWY_ALIGN float dout[kBlockElements];
  HWY_ALIGN float q_transposed[kBlockElements];
  HWY_ALIGN float dout_transposed[kBlockElements];
  HWY_ALIGN float dq_transposed[kBlockElements];
  HWY_ALIGN float log_sum_exp[kBlock];
  HWY_ALIGN float delta[kBlock];  // sum of dout * out of each query
};

/// A block of keys against a block of queries.
struct PairTiles {
  HWY_ALIGN float k[kBlockElements];
  HWY_ALIGN float v[kBlockElements];
  HWY_ALIGN float probabilities[kBlock * kBlock];  // [keys x queries]
  HWY_ALIGN float dscores[kBlock * kBlock];        // [keys x queries]
  HWY_ALIGN float factors[kBlock * kBlock];        // of dropout
};

template <typename T>
void load_queries(const QueryRows& rows, long head_dim, QueryTiles* tiles) {
  const long padded = padded_head_dim(head_dim);
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  pack_rows(rows.q.as<T>(), rows.q.stride, rows.queries, head_dim, scale, tiles->q);
  pack_rows(rows.dout.as<T>(), rows.dout.stride, rows.queries, head_dim, 1.0F, tiles->dout);
  clear_rows_from(rows.queries, head_dim, tiles->q);
  clear_rows_from(rows.queries, head_dim, tiles->dout);
  transpose(tiles->q, padded, kBlock, padded, tiles->q_transposed, kBlock);
  transpose(tiles->dout, padded, kBlock, padded, tiles->dout_transposed, kBlock);
  std::fill_n(tiles->dq_transposed, padded * kBlock, 0.0F);
  for (long query = 0; query < rows.queries; ++query) {
    VecF32 sum = hn::Zero(kF32Tag);
    const T* out = rows.out.row<T>(query);
    for_each_vector(head_dim, [&](long d, auto lanes) HWY_ATTR {
      sum = hn::MulAdd(
          load(out + d, lanes), hn::LoadU(kF32Tag, tiles->dout + query * padded + d), sum);
    });
    tiles->delta[query] = sum_of_lanes(sum);
    tiles->log_sum_exp[query] = rows.log_sum_exp[query];
  }
  // Queries past the end get probability 0 everywhere.
  for (long query = rows.queries; query < kBlock; ++query) {
    tiles->delta[query] = 0.0F;
    tiles->log_sum_exp[query] = std::numeric_limits<float>::infinity();
  }
}

// In: scores and the gradients of the probabilities that the values met. Out: these probabilities, gradients
// of the scores. delta, the mean of the gradients of all probabilities, is dout * out with dropout, too:
// both are sums over the keys that were kept.
template <bool kDrops>
HWY_INLINE void softmax_backward(
    bool on_diagonal, long keys, long queries, const QueryTiles& tiles, PairTiles* pair) {
  for (long query = 0; query < queries; query += kLanes) {
    const VisibleKeys visible = visible_keys(on_diagonal, query, keys);
    const VecF32 log_sum_exp = hn::LoadU(kF32Tag, tiles.log_sum_exp + query);
    const VecF32 delta = hn::LoadU(kF32Tag, tiles.delta + query);
    float* probabilities = pair->probabilities + query;
    float* dscores = pair->dscores + query;
    for (long key = 0; key < visible.end; ++key) {
      VecF32 probability = exponential_up_to_88(
          hn::Sub(hn::LoadU(kF32Tag, probabilities + key * kBlock), log_sum_exp));
      if (key > visible.open) {
        probability = hn::IfThenZeroElse(before_key(key - query), probability);
      }
      VecF32 dprobability = hn::LoadU(kF32Tag, dscores + key * kBlock);
      VecF32 used = probability;
      if constexpr (kDrops) {
        const VecF32 factor = hn::LoadU(kF32Tag, pair->factors + key * kBlock + query);
        dprobability = hn::Mul(dprobability, factor);
        used = hn::Mul(probability, factor);
      }
      VecF32 dscore = hn::Mul(probability, hn::Sub(dprobability, delta));
      if (key > visible.open) {
        dscore = hn::IfThenZeroElse(before_key(key - query), dscore);
      }
      hn::StoreU(used, kF32Tag, probabilities + key * kBlock);
      hn::StoreU(dscore, kF32Tag, dscores + key * kBlock);
    }
  }
}

// Scores and gradients of the probabilities of one segment.
HWY_INLINE void multiply_into_scores(
    KeySegment segment, long head_dim, long lanes, const QueryTiles& tiles, PairTiles* pair) {
  Product product;
  product.x_row = padded_head_dim(head_dim);
  product.y_inner = kBlock;
  product.c_row = kBlock;
  product.rows = segment.end - segment.begin;
  product.inner = head_dim;
  product.lanes = lanes - segment.first_query;
  const long corner = segment.begin * kBlock + segment.first_query;
  product.x = pair->k + segment.begin * product.x_row;
  product.y = tiles.q_transposed + segment.first_query;
  product.c = pair->probabilities + corner;
  multiply(product);
  product.x = pair->v + segment.begin * product.x_row;
  product.y = tiles.dout_transposed + segment.first_query;
  product.c = pair->dscores + corner;
  multiply(product);
}

// Adds the gradients of the keys and values [first_key, ...) of one segment.
HWY_INLINE void multiply_into_keys(KeySegment segment,
                                   const QueryRows& rows,
                                   Start start,
                                   const QueryTiles& tiles,
                                   const PairTiles& pair,
                                   const KeyGradients& sums) {
  const long padded = padded_head_dim(rows.q.cols);
  const long corner = segment.begin * kBlock + segment.first_query;
  Product product;
  product.x_row = kBlock;
  product.y_inner = padded;
  product.rows = segment.end - segment.begin;
  product.inner = rows.queries - segment.first_query;
  product.lanes = padded;
  product.start = start;
  product.x = pair.probabilities + corner;
  product.y = tiles.dout + segment.first_query * padded;
  product.c = sums.dv + segment.begin * sums.dv_row;
  product.c_row = sums.dv_row;
  multiply(product);
  product.x = pair.dscores + corner;
  product.y = tiles.q + segment.first_query * padded;
  product.c = sums.dk + segment.begin * sums.dk_row;
  product.c_row = sums.dk_row;
  multiply(product);
}

HWY_INLINE void multiply_into_queries(
    KeySegment segment, long head_dim, long lanes, const PairTiles& pair, QueryTiles* tiles) {
  const long padded = padded_head_dim(head_dim);
  Product product;
  product.x = pair.k + segment.begin * padded;
  product.x_row = 1;
  product.x_inner = padded;
  product.y = pair.dscores + segment.begin * kBlock + segment.first_query;
  product.y_inner = kBlock;
  product.c = tiles->dq_transposed + segment.first_query;
  product.c_row = kBlock;
  product.rows = head_dim;
  product.inner = segment.end - segment.begin;
  product.lanes = lanes - segment.first_query;
  product.start = Start::kResult;
  multiply(product);
}

template <typename T>
void backward_block(const QueryRows& rows,
                    const KeyRows& key_rows,
                    bool first_head,
                    const KeyGradients& sums) {
  // Clearing the tiles would touch megabytes of which small head_dims use little.
  QueryTiles tiles;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  PairTiles pair;    // NOLINT(cppcoreguidelines-pro-type-member-init)
  const long head_dim = rows.q.cols;
  const long padded = padded_head_dim(head_dim);
  const long lanes = round_up(rows.queries, kLanes);
  load_queries<T>(rows, head_dim, &tiles);

  for (long first_key = 0; first_key <= rows.first; first_key += kBlock) {
    const bool on_diagonal = first_key == rows.first;
    const long keys = on_diagonal ? rows.queries : kBlock;
    const Start start = first_head && on_diagonal ? Start::kZero : Start::kResult;
    const KeyGradients block_sums = {sums.dk + first_key * sums.dk_row,
                                     sums.dk_row,
                                     sums.dv + first_key * sums.dv_row,
                                     sums.dv_row};
    const Matrix& k = key_rows.k;
    const Matrix& v = key_rows.v;
    pack_rows(k.row<T>(first_key), k.stride, keys, head_dim, 1.0F, pair.k);
    pack_rows(v.row<T>(first_key), v.stride, keys, head_dim, 1.0F, pair.v);
    for_each_segment(on_diagonal, keys, [&](KeySegment segment) HWY_ATTR {
      multiply_into_scores(segment, head_dim, lanes, tiles, &pair);
    });
    if (rows.dropout == nullptr) {
      softmax_backward<false>(on_diagonal, keys, rows.queries, tiles, &pair);
    } else {
      fill_factors(*rows.dropout,
                   {rows.first, rows.first + rows.queries},
                   {first_key, first_key + keys},
                   on_diagonal,
                   pair.factors);
      softmax_backward<true>(on_diagonal, keys, rows.queries, tiles, &pair);
    }
    for_each_segment(on_diagonal, keys, [&](KeySegment segment) HWY_ATTR {
      multiply_into_keys(segment, rows, start, tiles, pair, block_sums);
      multiply_into_queries(segment, head_dim, lanes, pair, &tiles);
    });
  }

  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  for (long i = 0; i < padded * kBlock; i += kLanes) {
    float* at = tiles.dq_transposed + i;
    hn::StoreU(hn::Mul(hn::LoadU(kF32Tag, at), splat(scale)), kF32Tag, at);
  }
  transpose(tiles.dq_transposed, kBlock, padded, kBlock, pair.k, padded);
  unpack_rows(pair.k, rows.queries, head_dim, rows.dq.as<T>(), rows.dq.stride);
}

template <typename T>
void backward_task(const AttentionBackward& op, float* workspace, long task) {
  const AttentionShape& shape = op.shape;
  const long batch = task / shape.kv_heads;
  const long kv_head = task % shape.kv_heads;
  const long group = shape.heads / shape.kv_heads;
  const long head_dim = shape.head_dim;
  const auto kv_view = [&](const Matrix& matrix) {
    return matrix.columns(kv_head * head_dim, head_dim)
        .row_range(batch * shape.seq_length, shape.seq_length);
  };
  const KeyRows key_rows = {kv_view(op.k), kv_view(op.v)};
  const Matrix dk = kv_view(op.dk);
  const Matrix dv = kv_view(op.dv);
  KeyGradients sums = {dk.as<float>(), dk.stride, dv.as<float>(), dv.stride};
  if (!op.accumulates_in_place()) {
    const long padded = padded_head_dim(head_dim);
    float* const scratch = workspace + task * 2 * shape.seq_length * padded;
    sums = {scratch, padded, scratch + shape.seq_length * padded, padded};
  }

  for (long head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const HeadDropout dropout = head_dropout(op.dropout, batch, head);
    for (long first = 0; first < shape.seq_length; first += kBlock) {
      QueryRows rows;
      rows.first = first;
      rows.queries = std::min(kBlock, shape.seq_length - first);
      const auto q_view = [&](const Matrix& matrix) {
        return matrix.columns(head * head_dim, head_dim)
            .row_range(batch * shape.seq_length + first, rows.queries);
      };
      rows.q = q_view(op.q);
      rows.out = q_view(op.out);
      rows.dout = q_view(op.dout);
      rows.dq = q_view(op.dq);
      rows.log_sum_exp = op.log_sum_exp + (batch * shape.heads + head) * shape.seq_length + first;
      rows.dropout = op.dropout.source.drops() ? &dropout : nullptr;
      backward_block<T>(rows, key_rows, head == kv_head * group, sums);
    }
  }
  if (!op.accumulates_in_place()) {
    unpack_rows(sums.dk, shape.seq_length, head_dim, dk.as<T>(), dk.stride);
    unpack_rows(sums.dv, shape.seq_length, head_dim, dv.as<T>(), dv.stride);
  }
}

void attention_backward(CpuQueue& queue, const AttentionBackward& op) {
  auto* const workspace = reinterpret_cast<float*>(queue.workspace(op.workspace_bytes()));
  queue.threads().run(op.shape.batch * op.shape.kv_heads, [&op, workspace](long task) {
    if (op.q.dtype == DType::kBF16) {
      backward_task<BFloat16>(op, workspace, task);
    } else {
      backward_task<float>(op, workspace, task);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(attention_backward);
}  // namespace

void run_on_cpu(CpuQueue& queue, const AttentionBackward& op) {
  LOCKSTEP_CHECK(op.shape.head_dim <= kMaxHeadDim);
  HWY_DYNAMIC_DISPATCH(attention_backward)(queue, op);
}

}  // namespace lockstep
#endif
