// Memory that may not be touched: AddressSanitizer reports whoever does. Other builds do nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sanitizer/asan_interface.h>

#include "tensor/matrix.h"

namespace lockstep::test {

/// All of `bytes` from `data` may be touched again. Must be called before memory that was mapped,
/// not taken from the heap, is given back.
inline void allow(const void* data, std::size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
}

/// Of `bytes` from `data` only the elements of `matrix`, which lies there, may be touched.
inline void forbid_outside(const Matrix& matrix, const void* data, std::size_t bytes) {
  ASAN_POISON_MEMORY_REGION(data, bytes);
  const std::size_t element = size_of(matrix.dtype);
  const auto* row = static_cast<const std::uint8_t*>(matrix.data);
  for (long r = 0; r < matrix.rows; ++r) {
    allow(row, static_cast<std::size_t>(matrix.cols) * element);
    row += static_cast<std::size_t>(matrix.stride) * element;
  }
}

}  // namespace lockstep::test
