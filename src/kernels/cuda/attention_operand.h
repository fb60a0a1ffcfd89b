// How the attention kernels see their operands.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/integers.h"
#include "kernels/attention.h"
#include "tensor/matrix.h"

namespace lockstep {

/// Some rows of one head.
struct HeadRows {
  std::uint16_t* first = nullptr;
  long stride = 0;
  bool aligned = false;  ///< every row starts on a multiple of 16 bytes and has a multiple of them
};

/// A matrix in bf16: rows of all tokens, columns of all heads.
struct AttentionOperand {
  std::uint16_t* data = nullptr;
  long stride = 0;
  bool aligned = false;

  AttentionOperand() = default;
  AttentionOperand(const Matrix& matrix, long head_dim)
      : data(matrix.as<std::uint16_t>()),
        stride(matrix.stride),
        aligned(reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0 &&
                head_dim % 8 == 0) {}
  [[nodiscard]] constexpr HeadRows rows(long first_row, long head, long head_dim) const {
    return {data + first_row * stride + head * head_dim, stride, aligned};
  }
};

/// Sizes of an attention, and what scores are multiplied by.
struct AttentionSizes {
  long seq_length = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 0;       ///< 1 / sqrt(head_dim)
  float scale_log2 = 0;  ///< and by log2(e), for powers of two

  AttentionSizes() = default;
  explicit AttentionSizes(const AttentionShape& shape)
      : seq_length(shape.seq_length),
        heads(static_cast<int>(shape.heads)),
        kv_heads(static_cast<int>(shape.kv_heads)),
        head_dim(static_cast<int>(shape.head_dim)),
        scale(1.0F / std::sqrt(static_cast<float>(shape.head_dim))),
        scale_log2(static_cast<float>(kLog2E / std::sqrt(static_cast<double>(shape.head_dim)))) {}

  static constexpr double kLog2E = 1.4426950408889634;
};

/// Largest head_dim of the kernels for tensor cores.
inline constexpr long kMaxTensorCoreHeadDim = 128;

inline bool runs_on_tensor_cores(const AttentionShape& shape, DType dtype) {
  return dtype == DType::kBF16 && shape.head_dim <= kMaxTensorCoreHeadDim;
}

}  // namespace lockstep
