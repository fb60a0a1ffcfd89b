// Products of small f32 matrices that lie in the caches: the inner loops of attention.
//
// Outer-product form: a tile of the result stays in registers while the inner dimension runs, one
// vector load of y and one broadcast of x feeding several fused multiply-adds.

#if defined(LOCKSTEP_KERNELS_CPU_TILE_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CPU_TILE_PRODUCT_INL_H
#undef LOCKSTEP_KERNELS_CPU_TILE_PRODUCT_INL_H
#else
#define LOCKSTEP_KERNELS_CPU_TILE_PRODUCT_INL_H
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {

/// What a product starts from.
enum class Start : std::uint8_t { kZero, kResult, kScaledResult };

/// c[r, l] = start + sum over i of x(r, i) * y[i, l], the sum in the order of i, one fused
/// multiply-add each. x may be read by rows or by columns; `lanes` is a multiple of kLanes.
struct Product {
  const float* x = nullptr;  ///< element (r, i) is x[r * x_row + i * x_inner]
  long x_row = 0;
  long x_inner = 1;
  const float* y = nullptr;  ///< element (i, l) is y[i * y_inner + l]
  long y_inner = 0;
  float* c = nullptr;  ///< element (r, l) is c[r * c_row + l]
  long c_row = 0;
  long rows = 0;
  long inner = 0;
  long lanes = 0;
  Start start = Start::kZero;
  const float* scale = nullptr;  ///< one factor a lane, for kScaledResult
};

// Accumulators, one row of y and a broadcast fit into 32 registers, or 16 below AVX-512.
#if HWY_TARGET <= HWY_AVX3
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 2;
#endif

template <int kRows, int kVectors>
HWY_NOINLINE void product_tile(const Product& p, long row, long lane) {
  VecF32 sums[kRows][kVectors];
  float* const c = p.c + row * p.c_row + lane;
  if (p.start == Start::kZero) {
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::Zero(kF32Tag);
      }
    }
  } else {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      const VecF32 scale = p.start == Start::kScaledResult
                               ? hn::LoadU(kF32Tag, p.scale + lane + v * kLanes)
                               : splat(1.0F);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = hn::Mul(hn::LoadU(kF32Tag, c + r * p.c_row + v * kLanes), scale);
      }
    }
  }

  const float* x = p.x + row * p.x_row;
  const float* y = p.y + lane;
  const long x_row = p.x_row;
  for (long i = 0; i < p.inner; ++i) {
    VecF32 factors[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      factors[v] = hn::LoadU(kF32Tag, y + v * kLanes);
    }
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const VecF32 broadcast = splat(x[r * x_row]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(broadcast, factors[v], sums[r][v]);
      }
    }
    x += p.x_inner;
    y += p.y_inner;
  }

  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], kF32Tag, c + r * p.c_row + v * kLanes);
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void product_last_rows(const Product& p, long row, long lane) {
  if (p.rows - row == kRows) {
    product_tile<kRows, kVectors>(p, row, lane);
  } else if constexpr (kRows > 1) {
    product_last_rows<kRows - 1, kVectors>(p, row, lane);
  }
}

template <int kVectors>
HWY_INLINE void product_column(const Product& p, long lane) {
  long row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) {
    product_tile<kTileRows, kVectors>(p, row, lane);
  }
  product_last_rows<kTileRows - 1, kVectors>(p, row, lane);
}

template <int kVectors>
HWY_INLINE void product_last_column(const Product& p, long lane) {
  if ((p.lanes - lane) / kLanes == kVectors) {
    product_column<kVectors>(p, lane);
  } else if constexpr (kVectors > 1) {
    product_last_column<kVectors - 1>(p, lane);
  }
}

HWY_INLINE void multiply(const Product& p) {
  constexpr long kTileLanes = kTileVectors * kLanes;
  long lane = 0;
  for (; lane + kTileLanes <= p.lanes; lane += kTileLanes) {
    product_column<kTileVectors>(p, lane);
  }
  if constexpr (kTileVectors > 1) {
    product_last_column<kTileVectors - 1>(p, lane);
  }
}

/// The vector whose 128-bit block b is the four floats at from + b * stride.
template <class D>
HWY_INLINE hn::Vec<D> gather_blocks(D d, const float* from, long stride) {
  if constexpr (hn::MaxLanes(D{}) <= 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    constexpr long kHalfBlocks = static_cast<long>(hn::MaxLanes(D{})) / 8;
    return hn::Combine(d,
                       gather_blocks(half, from + kHalfBlocks * stride, stride),
                       gather_blocks(half, from, stride));
  }
}

/// to[c, r] = from[r, c]; rows is a multiple of kLanes, cols of 4.
HWY_INLINE void transpose(
    const float* from, long from_stride, long rows, long cols, float* to, long to_stride) {
  const hn::RepartitionToWide<TagBits32> pairs;
  const auto by_pairs = [&](VecF32 v) HWY_ATTR { return hn::BitCast(pairs, v); };
  for (long r = 0; r < rows; r += kLanes) {
    for (long c = 0; c < cols; c += 4) {
      // Block b of vector i holds row r + 4 b + i, so that 4 x 4 transpositions within blocks
      // leave the rows in order.
      const float* corner = from + r * from_stride + c;
      const VecF32 a0 = gather_blocks(kF32Tag, corner, 4 * from_stride);
      const VecF32 a1 = gather_blocks(kF32Tag, corner + from_stride, 4 * from_stride);
      const VecF32 a2 = gather_blocks(kF32Tag, corner + 2 * from_stride, 4 * from_stride);
      const VecF32 a3 = gather_blocks(kF32Tag, corner + 3 * from_stride, 4 * from_stride);
      const auto low01 = by_pairs(hn::InterleaveLower(kF32Tag, a0, a1));
      const auto low23 = by_pairs(hn::InterleaveLower(kF32Tag, a2, a3));
      const auto high01 = by_pairs(hn::InterleaveUpper(kF32Tag, a0, a1));
      const auto high23 = by_pairs(hn::InterleaveUpper(kF32Tag, a2, a3));
      float* out = to + c * to_stride + r;
      hn::StoreU(hn::BitCast(kF32Tag, hn::InterleaveLower(pairs, low01, low23)), kF32Tag, out);
      out += to_stride;
      hn::StoreU(hn::BitCast(kF32Tag, hn::InterleaveUpper(pairs, low01, low23)), kF32Tag, out);
      out += to_stride;
      hn::StoreU(hn::BitCast(kF32Tag, hn::InterleaveLower(pairs, high01, high23)), kF32Tag, out);
      out += to_stride;
      hn::StoreU(hn::BitCast(kF32Tag, hn::InterleaveUpper(pairs, high01, high23)), kF32Tag, out);
    }
  }
}

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
