// Kernels that show that the emulated device computes what a GPU would: each has a function that starts it.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace lockstep::self_test {

/// out = layer norm of each row of in[rows x cols], cols a multiple of 4, one block a row, in vectors of 16 bytes.
void layer_norm(cudaStream_t stream, float* out, const float* in, int rows, int cols, int threads);

/// out = softmax of each row of in[rows x cols], kept in shared memory; *total += sum of all, atomically.
void softmax(cudaStream_t stream, float* out, float* total, const float* in, int rows, int cols);

/// c[m x n] = a[m x k] b[n x k]^T by tensor cores; a block computes 16 x 16 with one warp, from tiles that it copies to
/// shared memory asynchronously, two in turn. m and n are multiples of 16, k of 32.
void product(cudaStream_t stream,
             float* c,
             const __nv_bfloat16* a,
             const __nv_bfloat16* b,
             int m,
             int n,
             int k);

/// What each lane of a warp gets of shuffles, votes and reductions: `count` numbers a lane, in the order of the
/// functions that are called.
inline constexpr int kWarpNumbers = 14;
void warp_functions(cudaStream_t stream, std::uint32_t* out);

/// x *= factor.
void scale(cudaStream_t stream, float* x, float factor, int count);

/// sums[i % num_sums] += 1 for every i, atomically.
void count_up(cudaStream_t stream, unsigned* sums, int num_sums, int blocks, int threads);

}  // namespace lockstep::self_test
