// Rows of f32 or bf16 in device memory as small vectors of f32: for kernels. A vector is accessed as a whole where
// all operands of a kernel lie so that it can be, else element by element: which elements a thread has, and so every
// bit, is the same.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "base/bfloat16.h"
#include "base/integers.h"
#include "kernels/matmul.h"
#include "tensor/matrix.h"

namespace lockstep {

template <int kWidth>
struct Floats {
  float at[kWidth];
};

/// Elements of 16 bytes.
template <typename T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

__device__ __forceinline__ float to_float_bits(std::uint32_t upper_half) {
  return __uint_as_float(upper_half << 16U);
}

__device__ __forceinline__ float value_of(float element) {
  return element;
}
__device__ __forceinline__ float value_of(BFloat16 element) {
  return to_float_bits(element.bits);
}

/// Two floats as bf16, rounded to nearest, ties to even; `low` in the lower half.
__device__ __forceinline__ std::uint32_t to_bfloat16_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.x)) |
         static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16U;
}

template <typename T>
__device__ __forceinline__ T element_of(float value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  } else {
    return value;
  }
}

/// The value that a T in memory would hold.
template <typename T>
__device__ __forceinline__ float round_to(float value) {
  return value_of(element_of<T>(value));
}

template <typename T, int kWidth>
__device__ __forceinline__ Floats<kWidth> round_to(Floats<kWidth> values) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values.at[i] = round_to<T>(values.at[i]);
  }
  return values;
}

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> zeros() {
  Floats<kWidth> values;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values.at[i] = 0.0F;
  }
  return values;
}

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> operator+(Floats<kWidth> a, const Floats<kWidth>& b) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    a.at[i] += b.at[i];
  }
  return a;
}

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> load_whole(const float* from) {
  Floats<kWidth> values;
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    values.at[i] = four.x;
    values.at[i + 1] = four.y;
    values.at[i + 2] = four.z;
    values.at[i + 3] = four.w;
  }
  return values;
}

template <int kWidth>
__device__ __forceinline__ Floats<kWidth> load_whole(const BFloat16* from) {
  std::uint32_t pairs[kWidth / 2];
  if constexpr (kWidth == 8) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    pairs[0] = four.x;
    pairs[1] = four.y;
    pairs[2] = four.z;
    pairs[3] = four.w;
  } else {
    const uint2 two = *reinterpret_cast<const uint2*>(from);
    pairs[0] = two.x;
    pairs[1] = two.y;
  }
  Floats<kWidth> values;
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) {
    values.at[2 * i] = to_float_bits(pairs[i] & 0xffffU);
    values.at[2 * i + 1] = to_float_bits(pairs[i] >> 16U);
  }
  return values;
}

template <int kWidth>
__device__ __forceinline__ void store_whole(const Floats<kWidth>& values, float* to) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    *reinterpret_cast<float4*>(to + i) =
        make_float4(values.at[i], values.at[i + 1], values.at[i + 2], values.at[i + 3]);
  }
}

template <int kWidth>
__device__ __forceinline__ void store_whole(const Floats<kWidth>& values, BFloat16* to) {
  std::uint32_t pairs[kWidth / 2];
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) {
    pairs[i] = to_bfloat16_pair(values.at[2 * i], values.at[2 * i + 1]);
  }
  if constexpr (kWidth == 8) {
    *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  } else {
    *reinterpret_cast<uint2*>(to) = make_uint2(pairs[0], pairs[1]);
  }
}

/// The first `count` elements; behind them zeros, for which nothing is read. kAligned: a whole vector lies at a multiple
/// of its size (of 16 bytes, if it is larger).
template <bool kAligned, int kWidth, typename T>
__device__ __forceinline__ Floats<kWidth> load_floats(const T* from, int count) {
  if (kAligned && count >= kWidth) {
    return load_whole<kWidth>(from);
  }
  Floats<kWidth> values;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values.at[i] = i < count ? value_of(from[i]) : 0.0F;
  }
  return values;
}

/// Rounds; writes the first `count` elements only.
template <bool kAligned, int kWidth, typename T>
__device__ __forceinline__ void store_floats(const Floats<kWidth>& values, T* to, int count) {
  if (kAligned && count >= kWidth) {
    store_whole(values, to);
    return;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (i < count) {
      to[i] = element_of<T>(values.at[i]);
    }
  }
}

/// Sums leaf(0) .. leaf(count - 1), each a Floats or a float, by the aligned tree; 1 <= count <= kGroup * 2^kLevels.
/// kGroup leaves (a power of two) are asked for at once, so that their loads are under way together.
template <int kGroup, int kLevels, typename Leaf>
__device__ __forceinline__ auto tree_sum(int count, const Leaf& leaf) {
  using Value = decltype(leaf(0));
  const auto group_sum = [&](int first) {
    Value values[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      values[i] = Value{};
      if (first + i < count) {
        values[i] = leaf(first + i);
      }
    }
#pragma unroll
    for (int step = 1; step < kGroup; step *= 2) {
#pragma unroll
      for (int i = 0; i + step < kGroup; i += 2 * step) {
        if (first + i + step < count) {
          values[i] = values[i] + values[i + step];
        }
      }
    }
    return values[0];
  };
  const int last = (count - 1) / kGroup;
  Value waiting[kLevels > 0 ? kLevels : 1] =
      {};  // whole subtrees whose right neighbour is not complete
  for (int group = 0; group < last; ++group) {
    Value sum = group_sum(group * kGroup);
    bool carries = true;  // without a break, which would keep `waiting` out of registers
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      const bool joins = carries && (group >> level & 1) != 0;
      if (joins) {
        sum = waiting[level] + sum;
      } else if (carries) {
        waiting[level] = sum;
      }
      carries = joins;
    }
  }
  Value sum = group_sum(last * kGroup);
#pragma unroll
  for (int level = 0; level < kLevels; ++level) {
    if ((last >> level & 1) != 0) {
      sum = waiting[level] + sum;
    }
  }
  return sum;
}

/// Rows of a matrix, in kernels.
template <typename T>
struct Rows {
  T* data = nullptr;
  long stride = 0;

  Rows() = default;
  explicit Rows(const Matrix& matrix)
      : data(matrix.as<T>()), stride(matrix.rows > 1 ? matrix.stride : 0) {}
  [[nodiscard]] __device__ __forceinline__ T* at(long row, long col) const {
    return data + row * stride + col;
  }
};

/// The blocks of a BlockSum, in kernels.
template <typename T>
struct BlockRows {
  Rows<const T> first;
  int count = 1;
  long stride = 0;

  explicit BlockRows(const BlockSum& blocks)
      : first(blocks.first), count(blocks.count), stride(blocks.stride) {}
  /// The tree sum of all blocks, not rounded.
  template <bool kAligned, int kWidth>
  [[nodiscard]] __device__ __forceinline__ Floats<kWidth> load(long row,
                                                               long col,
                                                               int width) const {
    const T* const from = first.at(row, col);
    if (count == 1) {
      return load_floats<kAligned, kWidth>(from, width);
    }
    Floats<kWidth> sum;  // by fours: what waits in a tree takes registers
#pragma unroll
    for (int four = 0; four < kWidth; four += 4) {
      const Floats<4> part = tree_sum<4, 4>(count, [&](int block) {
        return load_floats<kAligned, 4>(from + block * stride + four, width - four);
      });
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum.at[four + i] = part.at[i];
      }
    }
    return sum;
  }
};

static_assert(kMaxBlocks <= 4 << 4);

/// Whether every vector of `width` elements, counted from the first column, can be accessed as a whole.
inline bool is_aligned(const void* data, DType dtype, int width) {
  const std::size_t bytes =
      std::min<std::size_t>(16, static_cast<std::size_t>(width) * size_of(dtype));
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

inline bool is_aligned(const Matrix& matrix, int width) {
  const bool rows_fit =
      matrix.rows <= 1 ||
      matrix.stride % std::min<long>(width, 16 / static_cast<long>(size_of(matrix.dtype))) == 0;
  return is_aligned(matrix.data, matrix.dtype, width) && rows_fit;
}

inline bool is_aligned(const BlockSum& blocks, int width) {
  const Matrix& first = blocks.first;
  const long step = std::min<long>(width, 16 / static_cast<long>(size_of(first.dtype)));
  return is_aligned(first, width) && (blocks.count == 1 || blocks.stride % step == 0);
}

/// Calls call(T{}) with the type of `dtype`: f32 or bf16.
template <typename Call>
void with_type(DType dtype, const Call& call) {
  if (dtype == DType::kBF16) {
    call(BFloat16{});
  } else {
    call(0.0F);
  }
}

/// Calls call(std::true_type) or call(std::false_type).
template <typename Call>
void with_flag(bool flag, const Call& call) {
  if (flag) {
    call(std::true_type{});
  } else {
    call(std::false_type{});
  }
}

}  // namespace lockstep
