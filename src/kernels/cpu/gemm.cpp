#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bfloat16.h"
#include "base/integers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

using Quad = hn::FixedTag<float, 4>;

// Accumulators, two vectors of b and one element of a fill the 32 (AVX-512) or 16 registers.
constexpr long kVectors = 2;
constexpr long kRows = kLanes == 16 ? 14 : 6;
constexpr long kRowWidth = kLanes == 16 ? 16 : 8;
constexpr long kCols = kVectors * kLanes;

GemmStrips strips() {
  return {{kRows, kRowWidth}, {kCols, kCols}};
}

HWY_INLINE float load_float(const float* from) {
  return *from;
}

HWY_INLINE float load_float(const BFloat16* from) {
  return to_float(*from);
}

// Columns of `packed` from four rows of the operand.
template <typename T>
HWY_INLINE void transpose_four(const std::array<const T*, 4>& rows,
                               long inner,
                               long width,
                               float* packed) {
  const Quad d;
  const hn::RepartitionToWide<Quad> pairs;
  long i = 0;
  for (; i + 4 <= inner; i += 4) {
    const auto r0 = load_floats(d, rows[0] + i);
    const auto r1 = load_floats(d, rows[1] + i);
    const auto r2 = load_floats(d, rows[2] + i);
    const auto r3 = load_floats(d, rows[3] + i);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
    float* to = packed + i * width;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * width);
  }
  for (; i < inner; ++i) {
    for (std::size_t row = 0; row < 4; ++row) {
      packed[i * width + static_cast<long>(row)] = load_float(rows[row] + i);
    }
  }
}

template <typename T>
void pack_transposed(
    const T* from, long stride, long outer, long inner, long width, float* packed) {
  static constexpr std::array<T, kInnerBlock> kZeros{};
  for (long first = 0; first < round_up(outer, kLanes); first += 4) {
    std::array<const T*, 4> rows{};
    for (long row = 0; row < 4; ++row) {
      rows[static_cast<std::size_t>(row)] =
          first + row < outer ? from + (first + row) * stride : kZeros.data();
    }
    transpose_four(rows, inner, width, packed + first);
  }
}

// `readable` elements may be read at each inner index; those after `outer` are used by nobody.
template <typename T>
void pack_straight(
    const T* from, long stride, long outer, long readable, long inner, long width, float* packed) {
  const long lanes = round_up(outer, kLanes);
  const long whole = std::min(lanes, readable / kLanes * kLanes);
  for (long i = 0; i < inner; ++i, from += stride, packed += width) {
    for (long lane = 0; lane < whole; lane += kLanes) {
      store_floats(load_floats(Floats(), from + lane), packed + lane);
    }
    if (whole < lanes) {
      store_floats(load_first(from + whole, readable - whole), packed + whole);
    }
  }
}

template <typename T>
void pack_as(const GemmOperand& operand, const GemmRange& range, StripShape shape, float* packed) {
  const T* from = static_cast<const T*>(operand.data) + range.outer_begin * operand.outer_stride +
                  range.inner_begin * operand.inner_stride;
  const long inner = range.inner_end - range.inner_begin;
  for (long first = range.outer_begin; first < range.outer_end; first += shape.outer) {
    const long outer = std::min(shape.outer, range.outer_end - first);
    if (operand.inner_stride == 1) {
      pack_transposed(from, operand.outer_stride, outer, inner, shape.width, packed);
    } else {
      const long readable = range.outer_end - first;
      pack_straight(from, operand.inner_stride, outer, readable, inner, shape.width, packed);
    }
    from += shape.outer * operand.outer_stride;
    packed += inner * shape.width;
  }
}

void pack(const GemmOperand& operand, const GemmRange& range, StripShape shape, float* packed) {
  if (operand.dtype == DType::kBF16) {
    pack_as<BFloat16>(operand, range, shape, packed);
  } else {
    pack_as<float>(operand, range, shape, packed);
  }
}

// One register block: Rows x (Vectors * kLanes) elements of c, of which `cols` exist.
template <int Rows, int Vectors>
void multiply_tile(const StripProduct& p, const float* a, const float* b, float* c, long cols) {
  const Floats d;
  using V = FloatVector;
  V sums[Rows][Vectors];
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      sums[row][v] = hn::Zero(d);
    }
  }
  for (long i = 0; i < p.inner; ++i) {
    V right[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      right[v] = hn::Load(d, b + v * kLanes);
    }
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row) {
      const V left = hn::Set(d, a[row * p.a_outer_stride]);
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        sums[row][v] = hn::MulAdd(left, right[v], sums[row][v]);
      }
    }
    a += p.a_inner_stride;
    b += kCols;
  }
#pragma GCC unroll 2
  for (int v = 0; v < Vectors; ++v) {
    const long lanes = cols - v * kLanes;
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row) {
      float* to = c + row * p.c_stride + v * kLanes;
      if (lanes >= kLanes) {
        store_floats(p.add ? hn::Add(hn::LoadU(d, to), sums[row][v]) : sums[row][v], to);
      } else {
        store_first(p.add ? hn::Add(load_first(to, lanes), sums[row][v]) : sums[row][v], to, lanes);
      }
    }
  }
}

using TileFunction = void (*)(const StripProduct&, const float*, const float*, float*, long);

template <int... Rows>
constexpr auto tile_functions(std::integer_sequence<int, Rows...> /*rows*/) {
  return std::array<std::array<TileFunction, kVectors>, sizeof...(Rows)>{
      {{multiply_tile<Rows + 1, 1>, multiply_tile<Rows + 1, 2>}...}};
}

void multiply(const StripProduct& p) {
  static constexpr auto kTiles = tile_functions(std::make_integer_sequence<int, kRows>());
  const float* a = p.a;
  for (long row = 0; row < p.rows; row += p.a_strip_rows, a += p.a_strip_stride) {
    const auto& tiles =
        kTiles[static_cast<std::size_t>(std::min(p.a_strip_rows, p.rows - row) - 1)];
    for (long col = 0; col < p.cols; col += kCols) {
      const long cols = std::min(kCols, p.cols - col);
      const TileFunction tile = tiles[cols > kLanes ? 1 : 0];
      tile(p, a, p.b + col * p.inner, p.c + row * p.c_stride + col, cols);
    }
  }
}

void round_block(
    const float* from, long from_stride, BFloat16* to, long to_stride, long rows, long cols) {
  for (long row = 0; row < rows; ++row) {
    for_vectors(0, cols, [&](long col, auto part) HWY_ATTR {
      part.store(part.load(from + row * from_stride + col), to + row * to_stride + col);
    });
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(strips);
HWY_EXPORT(pack);
HWY_EXPORT(multiply);
HWY_EXPORT(round_block);

}  // namespace

GemmStrips gemm_strips() {
  return HWY_DYNAMIC_DISPATCH(strips)();
}

void pack_strips(const GemmOperand& operand,
                 const GemmRange& range,
                 StripShape shape,
                 float* packed) {
  HWY_DYNAMIC_DISPATCH(pack)(operand, range, shape, packed);
}

void multiply_strips(const StripProduct& product) {
  HWY_DYNAMIC_DISPATCH(multiply)(product);
}

void round_rows(
    const float* from, long from_stride, void* to, long to_stride, long rows, long cols) {
  HWY_DYNAMIC_DISPATCH(round_block)
  (from, from_stride, static_cast<BFloat16*>(to), to_stride, rows, cols);
}

}  // namespace lockstep
#endif
