// What the forward and the backward pass of attention share: blocks of rows packed in f32.
//
// Queries lie in the lanes of the vectors: scores, probabilities and their gradients are held
// transposed, [keys x queries], so that softmax needs no sums across lanes.

#if defined(LOCKSTEP_KERNELS_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_ATTENTION_INL_H
#undef LOCKSTEP_KERNELS_CPU_ATTENTION_INL_H
#else
#define LOCKSTEP_KERNELS_CPU_ATTENTION_INL_H
#endif

#include <algorithm>

#include "base/integers.h"
#include "kernels/attention.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tile_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

/// Queries, and keys, of a block. A multiple of the lanes of every instruction set.
inline constexpr long kBlock = 64;

/// Columns of a packed row: head_dim rounded up so that any vector divides it.
HWY_INLINE long padded_head_dim(long head_dim) {
  return round_up(head_dim, kHeadDimMultiple);
}

/// Room for a block of packed rows, or its transpose. Only the part in use is ever touched.
inline constexpr long kBlockElements = kBlock * kMaxHeadDim;

/// to[r, c] = scale * from[r, c] for r < count, c < head_dim; the other columns are zero.
template <typename T>
HWY_INLINE void pack_rows(
    const T* from, long stride, long count, long head_dim, float scale, float* to) {
  const long padded = padded_head_dim(head_dim);
  for (long row = 0; row < count; ++row) {
    float* out = to + row * padded;
    for_each_vector(head_dim, [&](long c, auto lanes) HWY_ATTR {
      const VecF32 value = load(from + row * stride + c, lanes);
      hn::StoreU(hn::Mul(value, splat(scale)), kF32Tag, out + c);
    });
    for (long c = round_up(head_dim, kLanes); c < padded; c += kLanes) {
      hn::StoreU(hn::Zero(kF32Tag), kF32Tag, out + c);
    }
  }
}

/// Zeroes packed rows [count, kBlock).
HWY_INLINE void clear_rows_from(long count, long head_dim, float* to) {
  const long padded = padded_head_dim(head_dim);
  std::fill(to + count * padded, to + kBlock * padded, 0.0F);
}

/// to[r, c] = round(from[r, c]) for r < count, c < head_dim; from has packed rows.
template <typename T>
HWY_INLINE void unpack_rows(const float* from, long count, long head_dim, T* to, long stride) {
  const long padded = padded_head_dim(head_dim);
  for (long row = 0; row < count; ++row) {
    for_each_vector(head_dim, [&](long c, auto lanes) HWY_ATTR {
      store(hn::LoadU(kF32Tag, from + row * padded + c), to + row * stride + c, lanes);
    });
  }
}

/// A group of keys [begin, end) of a block and the first query that sees any of them.
struct KeySegment {
  long begin = 0;
  long end = 0;
  long first_query = 0;
};

/// Calls body(segment) so that the work above the diagonal is left out, up to one vector. In the
/// block on the diagonal queries and keys have the same numbers.
template <typename Body>
HWY_INLINE void for_each_segment(bool on_diagonal, long keys, const Body& body) {
  if (!on_diagonal) {
    body(KeySegment{0, keys, 0});
    return;
  }
  for (long begin = 0; begin < keys; begin += kLanes) {
    body(KeySegment{begin, std::min(begin + kLanes, keys), begin});
  }
}

/// The keys that queries [query, query + kLanes) of a block see: all up to `open`, then a triangle.
struct VisibleKeys {
  long open = 0;
  long end = 0;
};

HWY_INLINE VisibleKeys visible_keys(bool on_diagonal, long query, long keys) {
  if (!on_diagonal) {
    return {keys, keys};
  }
  return {query, std::min(query + kLanes, keys)};
}

/// True in the lanes whose query comes before the key: `key` and lane 0 both counted from the
/// first query of the vector.
HWY_INLINE hn::Mask<TagF32> before_key(long key) {
  return hn::Lt(hn::Iota(kF32Tag, 0.0F), splat(static_cast<float>(key)));
}

/// The mask of one head of one sequence.
struct HeadDropout {
  DropoutMask mask;
  long sample = 0;
};

HWY_INLINE HeadDropout head_dropout(const AttentionDropout& dropout, long batch, long head) {
  if (!dropout.source.drops()) {
    return {};
  }
  return {dropout.source.mask(dropout.first_head + head), dropout.first_sample + batch};
}

/// factors[key, query] of the mask, for what the queries of a block see of a block of keys.
HWY_INLINE void fill_factors(const HeadDropout& dropout,
                             IndexRange queries,
                             IndexRange keys,
                             bool on_diagonal,
                             float* factors) {
  const VecBits64 step = hn::Set(kBits64Tag, dropout.mask.step);
  const VecBits64 sample = splat_counter(dropout.sample);
  for (long query = 0; query < queries.size(); query += kLanes) {
    const VisibleKeys visible = visible_keys(on_diagonal, query, keys.size());
    const auto first = static_cast<std::uint64_t>(queries.begin + query);
    const VecBits64 even =
        hn::Add(hn::Set(kBits64Tag, first), hn::ShiftLeft<1>(hn::Iota(kBits64Tag, 0)));
    const VecBits64 odd = hn::Add(even, hn::Set(kBits64Tag, 1));
    for (long key = 0; key < visible.end; key += 4) {
      const VecBits64 group = splat_counter((keys.begin + key) / 4);
      const CounterWords of_even = philox({{step, sample, even, group}}, dropout.mask.key);
      const CounterWords of_odd = philox({{step, sample, odd, group}}, dropout.mask.key);
      for (long i = 0; i < 4; ++i) {
        const VecBits32 words = alternate(of_even.word[i], of_odd.word[i]);
        hn::StoreU(factors_of(dropout.mask, words), kF32Tag, factors + (key + i) * kBlock + query);
      }
    }
  }
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
