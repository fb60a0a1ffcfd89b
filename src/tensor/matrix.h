// A view of a row-major matrix in device memory: what kernels take. It owns nothing.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace lockstep {

/// Rows of `cols` elements, `stride` elements apart. Activations are [tokens x features]; a block
/// of features (heads of one tensor block, say) is a view of some columns. A vector is one row.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  long rows = 0;
  long cols = 0;
  long stride = 0;

  Matrix() = default;
  Matrix(void* data_in, DType dtype_in, long rows_in, long cols_in)
      : Matrix(data_in, dtype_in, rows_in, cols_in, cols_in) {}
  Matrix(void* data_in, DType dtype_in, long rows_in, long cols_in, long stride_in)
      : data(data_in), dtype(dtype_in), rows(rows_in), cols(cols_in), stride(stride_in) {}

  /// False for an absent operand.
  explicit operator bool() const { return data != nullptr; }

  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data);
  }
  template <typename T>
  [[nodiscard]] T* row(long index) const {
    return static_cast<T*>(data) + index * stride;
  }
  [[nodiscard]] Matrix columns(long first, long count) const {
    return {at(first), dtype, rows, count, stride};
  }
  [[nodiscard]] Matrix row_range(long first, long count) const {
    return {at(first * stride), dtype, count, cols, stride};
  }
  [[nodiscard]] bool contiguous() const { return stride == cols || rows <= 1; }
  [[nodiscard]] long size() const { return rows * cols; }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(size()) * size_of(dtype);
  }

 private:
  [[nodiscard]] void* at(long element) const {
    return static_cast<std::byte*>(data) + element * static_cast<long>(size_of(dtype));
  }
};

}  // namespace lockstep
