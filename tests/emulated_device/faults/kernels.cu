#include "device/cuda/launch.h"
#include "emulated_device/faults/kernels.h"
#include "kernels/cuda/primitives.cuh"

namespace lockstep::faults {
namespace {

constexpr unsigned kAllLanes = 0xffffffffU;
constexpr unsigned kLowerHalf = 0xffffU;
constexpr unsigned kBlocks = 8;

__global__ void reverse_kernel(float* out, const float* in, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, values);
  values[threadIdx.x] = in[threadIdx.x];
  if (!wrong) {
    __syncthreads();
  }
  out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
}

__global__ void divergent_barrier_kernel(float* out, bool wrong) {
  if (!wrong || threadIdx.x < 40) {
    __syncthreads();
  }
  out[threadIdx.x] = 1.0F;
}

__global__ void two_barriers_kernel(float* out, bool wrong) {
  if (wrong && threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1.0F;
}

__global__ void shuffle_mask_kernel(float* out, bool wrong) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_xor_sync(wrong ? kAllLanes : kLowerHalf, 1.0F, 1);
  }
}

__global__ void different_masks_kernel(float* out, bool wrong) {
  const unsigned mask = wrong && threadIdx.x == 3 ? kLowerHalf : kAllLanes;
  out[threadIdx.x] = __shfl_xor_sync(mask, 1.0F, 1);
}

__global__ void missing_lanes_kernel(float* out, bool wrong) {
  if (wrong && threadIdx.x % 2 == 1) {
    return;
  }
  out[threadIdx.x] = __shfl_sync(kAllLanes, 1.0F, 0);
}

__global__ void fill_kernel(float* x, int count, bool wrong) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count + (wrong ? 1 : 0)) {
    x[i] = static_cast<float>(i);
  }
}

__global__ void shared_bounds_kernel(float* out, int count, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, values);
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    values[i] = 1.0F;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[0] = values[wrong ? count : count - 1];
  }
}

__global__ void block_writes_kernel(float* out, bool wrong) {
  if (threadIdx.x == 0) {
    out[wrong ? 0 : blockIdx.x] = static_cast<float>(blockIdx.x);
  }
}

__global__ void block_reads_kernel(float* out, bool wrong) {
  if (threadIdx.x == 0) {
    out[blockIdx.x] = 1.0F;
    const float other = out[wrong ? (blockIdx.x + 1) % gridDim.x : blockIdx.x];
    out[gridDim.x + blockIdx.x] = other;
  }
}

__global__ void mixed_atomics_kernel(unsigned* sum, bool wrong) {
  if (threadIdx.x == 0) {
    if (wrong && blockIdx.x == 3) {
      *sum += 1U;
    } else {
      atomicAdd(sum, 1U);
    }
  }
}

__global__ void exchange_in_warp_kernel(float* out, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, values);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (!wrong) {
    __syncwarp();
  }
  out[threadIdx.x] = values[threadIdx.x ^ 1U];
}

__global__ void overwrite_shared_kernel(float* out, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, value);
  float sum = 0.0F;
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x == 0) {
      *value = static_cast<float>(i);
    }
    __syncthreads();
    sum += *value;
    if (!wrong) {
      __syncthreads();
    }
  }
  out[threadIdx.x] = sum;
}

__global__ void copy_vectors_kernel(float* to, const float* from, int count, bool wrong) {
  const int i = 4 * static_cast<int>(threadIdx.x);
  if (i + 4 <= count || (wrong && i < count)) {
    *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(from + i);
  } else {
    for (int j = i; j < count; ++j) {
      to[j] = from[j];
    }
  }
}

__global__ void vector_alignment_kernel(float* out, const float* in, bool wrong) {
  *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(in + (wrong ? 1 : 0));
}

__global__ void read_all_kernel(float* out, const float* in, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    out[i] = in[i];
  }
}

__global__ void undefined_shared_kernel(float* out, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, values);
  if (!wrong || threadIdx.x != 5) {
    values[threadIdx.x] = 1.0F;
  }
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void copy_wait_kernel(float* out, const float* in, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, values);
  copy_async_16(values + 4 * threadIdx.x, in + 4 * threadIdx.x, 16);
  copy_async_commit();
  if (!wrong) {
    copy_async_wait<0>();
  }
  __syncthreads();
  out[threadIdx.x] = values[4 * threadIdx.x];
}

__global__ void copy_barrier_kernel(float* out, const float* in, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, values);
  copy_async_16(values + 4 * threadIdx.x, in + 4 * threadIdx.x, 16);
  copy_async_commit();
  copy_async_wait<0>();
  if (!wrong) {
    __syncthreads();
  }
  out[threadIdx.x] = values[4 * (blockDim.x - 1 - threadIdx.x)];
}

__global__ void copy_groups_kernel(float* out, const float* in, bool wrong) {
  LOCKSTEP_SHARED_MEMORY(float, values);
  for (int group = 0; group < 2; ++group) {
    const unsigned at = 4 * (group * blockDim.x + threadIdx.x);
    copy_async_16(values + at, in + at, 16);
    copy_async_commit();
  }
  copy_async_wait<1>();
  out[threadIdx.x] = values[4 * ((wrong ? blockDim.x : 0) + threadIdx.x)];
}

__global__ void twice_kernel(float* x, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    x[i] *= 2.0F;
  }
}

// What is called may not be optimised into a loop.
__device__ __attribute__((noinline)) float descend(int depth, float value) {
  volatile float frame[256];
  frame[depth % 256] = value;
  return depth == 0 ? frame[0] : descend(depth - 1, value + 1.0F) + frame[depth % 256];
}

__global__ void deep_stack_kernel(float* out, bool wrong) {
  out[threadIdx.x] = descend(wrong ? 1000 : 10, 1.0F);
}

void launch_block(cudaStream_t stream,
                  void (*kernel)(float*, bool),
                  float* out,
                  bool wrong,
                  std::size_t shared_bytes = 0) {
  launch_kernel({1, kThreads, shared_bytes}, stream, kernel, out, wrong);
}

unsigned blocks_for(int count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

void reverse(cudaStream_t stream, float* out, const float* in, bool wrong) {
  launch_kernel({1, kThreads, kThreads * sizeof(float)}, stream, reverse_kernel, out, in, wrong);
}

void divergent_barrier(cudaStream_t stream, float* out, bool wrong) {
  launch_block(stream, divergent_barrier_kernel, out, wrong);
}

void two_barriers(cudaStream_t stream, float* out, bool wrong) {
  launch_block(stream, two_barriers_kernel, out, wrong);
}

void shuffle_mask(cudaStream_t stream, float* out, bool wrong) {
  launch_kernel({1, 32}, stream, shuffle_mask_kernel, out, wrong);
}

void different_masks(cudaStream_t stream, float* out, bool wrong) {
  launch_kernel({1, 32}, stream, different_masks_kernel, out, wrong);
}

void missing_lanes(cudaStream_t stream, float* out, bool wrong) {
  launch_kernel({1, 32}, stream, missing_lanes_kernel, out, wrong);
}

void fill(cudaStream_t stream, float* x, int count, bool wrong) {
  launch_kernel({blocks_for(count + 1), kThreads}, stream, fill_kernel, x, count, wrong);
}

void shared_bounds(cudaStream_t stream, float* out, int count, bool wrong) {
  const std::size_t shared_bytes = static_cast<std::size_t>(count) * sizeof(float);
  launch_kernel({1, kThreads, shared_bytes}, stream, shared_bounds_kernel, out, count, wrong);
}

void block_writes(cudaStream_t stream, float* out, bool wrong) {
  launch_kernel({kBlocks, 32}, stream, block_writes_kernel, out, wrong);
}

void block_reads(cudaStream_t stream, float* out, bool wrong) {
  launch_kernel({kBlocks, 32}, stream, block_reads_kernel, out, wrong);
}

void mixed_atomics(cudaStream_t stream, unsigned* sum, bool wrong) {
  launch_kernel({kBlocks, 32}, stream, mixed_atomics_kernel, sum, wrong);
}

void exchange_in_warp(cudaStream_t stream, float* out, bool wrong) {
  launch_block(stream, exchange_in_warp_kernel, out, wrong, kThreads * sizeof(float));
}

void overwrite_shared(cudaStream_t stream, float* out, bool wrong) {
  launch_block(stream, overwrite_shared_kernel, out, wrong, sizeof(float));
}

void copy_vectors(cudaStream_t stream, float* to, const float* from, int count, bool wrong) {
  launch_kernel({1, kThreads}, stream, copy_vectors_kernel, to, from, count, wrong);
}

void vector_alignment(cudaStream_t stream, float* out, const float* in, bool wrong) {
  launch_kernel({1, 1}, stream, vector_alignment_kernel, out, in, wrong);
}

void read_all(cudaStream_t stream, float* out, const float* in, int count) {
  launch_kernel({blocks_for(count), kThreads}, stream, read_all_kernel, out, in, count);
}

void undefined_shared(cudaStream_t stream, float* out, bool wrong) {
  launch_block(stream, undefined_shared_kernel, out, wrong, kThreads * sizeof(float));
}

void copy_wait(cudaStream_t stream, float* out, const float* in, bool wrong) {
  launch_kernel({1, kThreads, 16 * kThreads}, stream, copy_wait_kernel, out, in, wrong);
}

void copy_barrier(cudaStream_t stream, float* out, const float* in, bool wrong) {
  launch_kernel({1, kThreads, 16 * kThreads}, stream, copy_barrier_kernel, out, in, wrong);
}

void copy_groups(cudaStream_t stream, float* out, const float* in, bool wrong) {
  launch_kernel({1, kThreads, 32 * kThreads}, stream, copy_groups_kernel, out, in, wrong);
}

void twice(cudaStream_t stream, float* x, int count) {
  launch_kernel({blocks_for(count), kThreads}, stream, twice_kernel, x, count);
}

void deep_stack(cudaStream_t stream, float* out, bool wrong) {
  launch_block(stream, deep_stack_kernel, out, wrong);
}

}  // namespace lockstep::faults
