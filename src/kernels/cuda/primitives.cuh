// Instructions that CUDA C++ has no functions for: tensor cores (bf16), the loads that feed them, copies to shared
// memory that run beside the kernel. Compute capability 8.0. The emulated device has its own (tests/emulated_device).
#pragma once

#include <cstdint>

#ifdef LOCKSTEP_EMULATED_DEVICE
#include "emulated_device/primitives.h"
#else

namespace lockstep {

/// d[16 x 8] += a[16 x 16] * b[16 x 8] of one warp; a and b in bf16, sums in f32. All lanes call it. With group = lane / 4
/// and pair = lane % 4 a lane holds
///   a[i]: columns 2 pair + 8 (i / 2) and the next of row group + 8 (i % 2), the lower column in the lower half,
///   b[i]: rows 2 pair + 8 i and the next of column group,
///   d[i]: column 2 pair + i % 2 of row group + 8 (i / 2).
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4],
                                             const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + r passes the address of row r of matrix i
/// (16 bytes, on a multiple of 16). A lane gets of matrix i in m[i]: columns 2 (lane % 4) and the next of row lane / 4.
/// All lanes call it.
__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&m)[4], const void* shared_row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

/// The same of the transposed matrices: rows 2 (lane % 4) and the next of column lane / 4.
__device__ __forceinline__ void load_matrix_x4_transposed(std::uint32_t (&m)[4],
                                                          const void* shared_row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

/// 2^x, relatively wrong by 2^-22 at most; results below 2^-126 become 0.
__device__ __forceinline__ float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Starts copying 16 bytes from global to shared memory, both on a multiple of 16. Of them `valid_bytes` (0 to 16) are
/// read, the rest becomes zero. `shared` may not be touched until the calling thread has waited for it, nor by other
/// threads until a barrier after that.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, int valid_bytes) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(__cvta_generic_to_global(global)), "r"(valid_bytes)
               : "memory");
}

/// Closes a group of the copies that the calling thread has started since the last one.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most the kPending latest groups of the calling thread are not complete.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

}  // namespace lockstep

#endif
