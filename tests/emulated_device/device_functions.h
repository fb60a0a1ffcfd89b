// What code of an emulated kernel calls: where a thread is, how it meets others, and memory beyond loads and stores.
// All of it runs on the thread's fiber; every function may only be called from within a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <vector_types.h>

namespace lockstep::emulated {

// A thread runs on one fiber from its start to its end, so that these are constants to it.
[[gnu::const]] uint3 thread_index();
[[gnu::const]] uint3 block_index();
[[gnu::const]] dim3 block_size();
[[gnu::const]] dim3 grid_size();
[[gnu::const]] unsigned lane();

/// The dynamic shared memory of the block, on a multiple of 128 bytes.
[[gnu::const]] void* shared_memory();

enum class BarrierReduction : std::uint8_t { kNone, kCount, kAnd, kOr };

/// __syncthreads and its reductions. Faults unless all threads of the block wait at one line.
int block_barrier(BarrierReduction reduction, bool predicate, int line);

/// What the lanes of a warp do together.
enum class WarpCall : std::uint8_t {
  kSync,
  kShuffle,
  kBallot,
  kMatchAny,
  kAdd,
  kMin,
  kMax,
  kMinSigned,
  kMaxSigned,
  kAnd,
  kOr,
  kXor,
  kProduct,
  kLoadMatrix,
  kLoadMatrixTransposed
};

void warp_sync(unsigned mask, int line);
/// `bits` of the lane `source`; faults when that lane is not in `mask`.
std::uint64_t warp_shuffle(unsigned mask, std::uint64_t bits, unsigned source, int line);
unsigned warp_ballot(unsigned mask, bool predicate, int line);
unsigned warp_match_any(unsigned mask, std::uint64_t bits, int line);
/// kAdd to kXor.
unsigned warp_reduce(WarpCall call, unsigned mask, unsigned value, int line);
/// The lanes of `mask` that have arrived and still run: all of the warp that have not ended.
unsigned active_mask();

/// mma_m16n8k16 of kernels/cuda/primitives.cuh.
void warp_product(float* d, const std::uint32_t* a, const std::uint32_t* b, int line);
/// load_matrix_x4 of kernels/cuda/primitives.cuh.
void warp_load_matrix(std::uint32_t* m, const void* row, bool transposed, int line);

void copy_async(void* shared, const void* global, int valid_bytes);
void copy_async_commit();
void copy_async_wait(int pending);

/// The two halves of an atomic operation on 2, 4 or 8 bytes; no other thread runs between them.
std::uint64_t atomic_load(const void* address, std::size_t bytes);
void atomic_store(void* address, std::uint64_t bits, std::size_t bytes);

/// Ends the program with a message that names the thread.
[[noreturn]] void kernel_trap(const char* reason);

/// Counts up; not a measure of time.
long long clock_ticks();

}  // namespace lockstep::emulated
