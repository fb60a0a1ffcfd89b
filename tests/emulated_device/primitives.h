// kernels/cuda/primitives.cuh on the emulated device; the contracts stand there.
#pragma once

#include <cmath>
#include <cstdint>

#include "emulated_device/device_functions.h"

namespace lockstep {

inline void mma_m16n8k16(float (&d)[4],
                         const std::uint32_t (&a)[4],
                         const std::uint32_t (&b)[2],
                         int line = __builtin_LINE()) {
  emulated::warp_product(d, a, b, line);
}

inline void load_matrix_x4(std::uint32_t (&m)[4],
                           const void* shared_row,
                           int line = __builtin_LINE()) {
  emulated::warp_load_matrix(m, shared_row, false, line);
}

inline void load_matrix_x4_transposed(std::uint32_t (&m)[4],
                                      const void* shared_row,
                                      int line = __builtin_LINE()) {
  emulated::warp_load_matrix(m, shared_row, true, line);
}

// ex2.approx.ftz.f32: results below 2^-126 become 0.
inline float exp2_approximate(float x) {
  const float result = std::exp2(x);
  return result < 0x1p-126F ? 0.0F : result;
}

inline void copy_async_16(void* shared, const void* global, int valid_bytes) {
  emulated::copy_async(shared, global, valid_bytes);
}

inline void copy_async_commit() {
  emulated::copy_async_commit();
}

template <int kPending>
void copy_async_wait() {
  emulated::copy_async_wait(kPending);
}

}  // namespace lockstep
