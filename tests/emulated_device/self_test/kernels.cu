#include "device/cuda/launch.h"
#include "emulated_device/self_test/kernels.h"
#include "kernels/cuda/primitives.cuh"

namespace lockstep::self_test {
namespace {

constexpr unsigned kAllLanes = 0xffffffffU;
constexpr float kEpsilon = 1e-5F;

__device__ __forceinline__ float warp_sum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, lanes);
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

// One number a warp. The first barrier lets the sums of the call before be read.
__device__ float block_sum(float value, float* warp_sums) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    warp_sums[threadIdx.x / 32] = value;
  }
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? warp_sums[threadIdx.x % 32] : 0.0F);
}

__global__ void layer_norm_kernel(float* out, const float* in, int cols) {
  LOCKSTEP_SHARED_MEMORY(float, warp_sums);
  const auto* x = reinterpret_cast<const float4*>(in + static_cast<long>(blockIdx.x) * cols);
  auto* y = reinterpret_cast<float4*>(out + static_cast<long>(blockIdx.x) * cols);
  float sum = 0.0F;
  for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
    const float4 v = __ldg(x + i);
    sum += v.x + v.y + v.z + v.w;
  }
  const float mean = block_sum(sum, warp_sums) / cols;
  float squares = 0.0F;
  for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
    const float4 v = x[i];
    squares += (v.x - mean) * (v.x - mean) + (v.y - mean) * (v.y - mean) +
               (v.z - mean) * (v.z - mean) + (v.w - mean) * (v.w - mean);
  }
  const float rstd = rsqrtf(block_sum(squares, warp_sums) / cols + kEpsilon);
  for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
    const float4 v = x[i];
    y[i] = make_float4(
        (v.x - mean) * rstd, (v.y - mean) * rstd, (v.z - mean) * rstd, (v.w - mean) * rstd);
  }
}

__global__ void softmax_kernel(float* out, float* total, const float* in, int cols) {
  LOCKSTEP_SHARED_MEMORY(float, shared);
  float* warp_values = shared;
  float* row = shared + 32;
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) {
    row[i] = in[static_cast<long>(blockIdx.x) * cols + i];
    largest = fmaxf(largest, row[i]);
  }
  largest = warp_max(largest);
  if (lane == 0) {
    warp_values[warp] = largest;
  }
  __syncthreads();
  largest = warp_max(lane < blockDim.x / 32 ? warp_values[lane] : -INFINITY);
  float sum = 0.0F;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) {
    row[i] = __expf(row[i] - largest);
    sum += row[i];
  }
  sum = block_sum(sum, warp_values);
  float part = 0.0F;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) {
    out[static_cast<long>(blockIdx.x) * cols + i] = row[i] / sum;
    part += row[i] / sum;
  }
  part = warp_sum(part);
  if (lane == 0) {
    atomicAdd(total, part);
  }
}

constexpr int kTileRows = 16;
constexpr int kTileCols = 32;

struct ProductTiles {
  __nv_bfloat16 a[2][kTileRows][kTileCols];
  __nv_bfloat16 b[2][kTileRows][kTileCols];
};

__device__ void start_tile(
    ProductTiles* tiles, int stage, const __nv_bfloat16* a, const __nv_bfloat16* b, int k) {
  for (int piece = threadIdx.x; piece < kTileRows * kTileCols / 8; piece += 32) {
    const int row = piece / (kTileCols / 8);
    const int col = piece % (kTileCols / 8) * 8;
    copy_async_16(&tiles->a[stage][row][col], a + static_cast<long>(row) * k + col, 16);
    copy_async_16(&tiles->b[stage][row][col], b + static_cast<long>(row) * k + col, 16);
  }
  copy_async_commit();
}

__device__ void add_tile(const ProductTiles* tiles, int stage, float (&d)[2][4]) {
  const unsigned lane = threadIdx.x;
  for (int k = 0; k < kTileCols; k += 16) {
    std::uint32_t a[4];
    std::uint32_t b[4];
    // Matrices 0 and 1 are the upper and lower rows of the left columns, 2 and 3 of the right ones.
    load_matrix_x4(a, &tiles->a[stage][lane % 16][k + lane / 16 * 8]);
    load_matrix_x4(b, &tiles->b[stage][lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
    mma_m16n8k16(d[0], a, {b[0], b[1]});
    mma_m16n8k16(d[1], a, {b[2], b[3]});
  }
}

__global__ void product_kernel(
    float* c, const __nv_bfloat16* a, const __nv_bfloat16* b, int n, int k) {
  LOCKSTEP_SHARED_MEMORY(ProductTiles, tiles);
  const int row = blockIdx.y * 16;
  const int col = blockIdx.x * 16;
  a += static_cast<long>(row) * k;
  b += static_cast<long>(col) * k;
  float d[2][4] = {};
  start_tile(tiles, 0, a, b, k);
  for (int tile = 0; tile * kTileCols < k; ++tile) {
    if ((tile + 1) * kTileCols < k) {
      start_tile(tiles, (tile + 1) % 2, a + (tile + 1) * kTileCols, b + (tile + 1) * kTileCols, k);
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    __syncwarp();
    add_tile(tiles, tile % 2, d);
    __syncwarp();
  }
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      const int at_row = row + threadIdx.x / 4 + i / 2 * 8;
      const int at_col = col + half * 8 + threadIdx.x % 4 * 2 + i % 2;
      c[static_cast<long>(at_row) * n + at_col] = d[half][i];
    }
  }
}

__global__ void warp_functions_kernel(std::uint32_t* out) {
  const unsigned lane = threadIdx.x;
  std::uint32_t* mine = out + lane * kWarpNumbers;
  mine[0] = __shfl_sync(kAllLanes, lane, 5);
  mine[1] = __shfl_sync(kAllLanes, lane, 3, 8);
  mine[2] = __shfl_up_sync(kAllLanes, lane, 2);
  mine[3] = __shfl_down_sync(kAllLanes, lane, 2, 16);
  mine[4] = __shfl_xor_sync(kAllLanes, lane, 1);
  mine[5] = __ballot_sync(kAllLanes, lane % 3 == 0);
  mine[6] = __any_sync(kAllLanes, lane == 31) + 2 * __all_sync(kAllLanes, lane < 31);
  mine[7] = __match_any_sync(kAllLanes, lane / 8);
  mine[8] = __reduce_add_sync(kAllLanes, lane);
  mine[9] = __reduce_max_sync(kAllLanes, static_cast<int>(lane) - 31);
  mine[10] = __reduce_min_sync(kAllLanes, static_cast<int>(lane) - 31);
  mine[11] = __reduce_xor_sync(kAllLanes, lane * lane);
  mine[12] = 0;
  if (lane < 16) {
    mine[12] = __reduce_or_sync(0xffffU, lane);
  }
  mine[13] = static_cast<std::uint32_t>(__syncthreads_count(lane % 2 == 0));
}

__global__ void scale_kernel(float* x, float factor, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    x[i] *= factor;
  }
}

__global__ void count_up_kernel(unsigned* sums, int num_sums) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&sums[i % static_cast<unsigned>(num_sums)], 1U);
}

}  // namespace

void layer_norm(cudaStream_t stream, float* out, const float* in, int rows, int cols, int threads) {
  launch_kernel({static_cast<unsigned>(rows), static_cast<unsigned>(threads), 32 * sizeof(float)},
                stream,
                layer_norm_kernel,
                out,
                in,
                cols);
}

void softmax(cudaStream_t stream, float* out, float* total, const float* in, int rows, int cols) {
  const std::size_t shared_bytes = (32 + static_cast<std::size_t>(cols)) * sizeof(float);
  launch_kernel({static_cast<unsigned>(rows), 128, shared_bytes},
                stream,
                softmax_kernel,
                out,
                total,
                in,
                cols);
}

void product(cudaStream_t stream,
             float* c,
             const __nv_bfloat16* a,
             const __nv_bfloat16* b,
             int m,
             int n,
             int k) {
  const dim3 grid(static_cast<unsigned>(n / 16), static_cast<unsigned>(m / 16));
  launch_kernel({grid, 32, sizeof(ProductTiles)}, stream, product_kernel, c, a, b, n, k);
}

void warp_functions(cudaStream_t stream, std::uint32_t* out) {
  launch_kernel({1, 32}, stream, warp_functions_kernel, out);
}

void scale(cudaStream_t stream, float* x, float factor, int count) {
  launch_kernel(
      {static_cast<unsigned>((count + 63) / 64), 64}, stream, scale_kernel, x, factor, count);
}

void count_up(cudaStream_t stream, unsigned* sums, int num_sums, int blocks, int threads) {
  launch_kernel({static_cast<unsigned>(blocks), static_cast<unsigned>(threads)},
                stream,
                count_up_kernel,
                sums,
                num_sums);
}

}  // namespace lockstep::self_test
