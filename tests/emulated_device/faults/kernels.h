// Kernels that are wrong if they are told to be; otherwise right.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::faults {

inline constexpr int kThreads = 96;

/// out[i] = in[kThreads - 1 - i] through shared memory; wrong: without the barrier in between.
void reverse(cudaStream_t stream, float* out, const float* in, bool wrong);
/// Wrong: only some threads of the block come to the barrier.
void divergent_barrier(cudaStream_t stream, float* out, bool wrong);
/// Wrong: threads come to two different barriers.
void two_barriers(cudaStream_t stream, float* out, bool wrong);
/// Half a warp shuffles; wrong: with the mask of the whole warp.
void shuffle_mask(cudaStream_t stream, float* out, bool wrong);
/// Wrong: lanes pass different masks.
void different_masks(cudaStream_t stream, float* out, bool wrong);
/// Wrong: half of the lanes have returned.
void missing_lanes(cudaStream_t stream, float* out, bool wrong);
/// x[i] = i for `count` values; wrong: for one more.
void fill(cudaStream_t stream, float* x, int count, bool wrong);
/// Reads `count` values from shared memory of that size; wrong: one more.
void shared_bounds(cudaStream_t stream, float* out, int count, bool wrong);
/// out[block] = block; wrong: all blocks write the first value, or read what another wrote.
void block_writes(cudaStream_t stream, float* out, bool wrong);
void block_reads(cudaStream_t stream, float* out, bool wrong);
/// Sums atomically; wrong: some blocks add without.
void mixed_atomics(cudaStream_t stream, unsigned* sum, bool wrong);
/// Neighbouring lanes exchange values through shared memory; wrong: without __syncwarp.
void exchange_in_warp(cudaStream_t stream, float* out, bool wrong);
/// Shared memory is written again after it was read; wrong: without a barrier.
void overwrite_shared(cudaStream_t stream, float* out, bool wrong);
/// Copies `count` values in vectors of 4; wrong: the tail, too.
void copy_vectors(cudaStream_t stream, float* to, const float* from, int count, bool wrong);
/// Reads a vector of 4 from where it starts; wrong: one value further.
void vector_alignment(cudaStream_t stream, float* out, const float* in, bool wrong);
/// out[i] = in[i].
void read_all(cudaStream_t stream, float* out, const float* in, int count);
/// Wrong: reads shared memory that no one has written.
void undefined_shared(cudaStream_t stream, float* out, bool wrong);
/// Copies to shared memory asynchronously and reads; wrong: without waiting for the copy.
void copy_wait(cudaStream_t stream, float* out, const float* in, bool wrong);
/// The same; wrong: waits, but reads what another thread has copied without a barrier.
void copy_barrier(cudaStream_t stream, float* out, const float* in, bool wrong);
/// Waits for the first of two groups of copies; wrong: reads the second.
void copy_groups(cudaStream_t stream, float* out, const float* in, bool wrong);
/// x[i] *= 2.
void twice(cudaStream_t stream, float* x, int count);
/// A thread writes memory of its own stack; wrong: too much of it.
void deep_stack(cudaStream_t stream, float* out, bool wrong);

}  // namespace lockstep::faults
