// The checks of every access: within memory that is there, of bytes that are defined, ordered with the accesses of
// other threads, blocks and operations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::emulated {

enum class Access : std::uint8_t { kRead, kWrite, kAtomic };

/// An access of the thread that runs; `code` is the address behind it. Faults, naming both sides.
void check_thread_access(std::uintptr_t address,
                         std::size_t bytes,
                         Access access,
                         const void* code);

/// An access of the operation that runs now: a copy, a product of matrices, a message. Faults for memory that the device
/// cannot reach. Reads need defined bytes if `needs_values`.
void check_operation_access(const void* address,
                            std::size_t bytes,
                            Access access,
                            bool needs_values = true);
/// Copies which bytes are defined, after the values were copied.
void copy_states(const void* to, const void* from, std::size_t bytes);

/// Shared memory of a new block: undefined.
void reset_shared_states(std::size_t bytes);
/// Forgets who touched shared memory: the count of barriers starts anew.
void forget_shared_accesses();
/// A copy into shared memory that is under way or, with `arrived`, a write by the running thread.
void mark_arriving(std::uintptr_t shared, std::size_t bytes);
void mark_arrived(std::uintptr_t shared, std::size_t bytes);

}  // namespace lockstep::emulated
