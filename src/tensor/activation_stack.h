// Last-in-first-out memory: what a forward pass keeps for its backward pass, and scratch.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// A stack over one allocation. Forward passes push, backward passes pop in reverse; nothing
/// fragments and the peak is exact. Run on the dry device it tells the capacity a real run needs.
class ActivationStack {
 public:
  /// A position to return to.
  using Mark = std::size_t;

  /// `capacity` bytes of the queue's device.
  ActivationStack(Queue& queue, std::size_t capacity);
  /// Measures only: grows without bound; nothing in it may be touched. For the dry device.
  explicit ActivationStack(Queue& dry_queue);

  /// Uninitialised memory, aligned to kMemoryAlignment. A push beyond the capacity is a bug.
  void* push(std::size_t bytes);
  /// A contiguous matrix.
  Matrix push(DType dtype, long rows, long cols);
  template <typename T>
  T* push_array(long count) {
    return static_cast<T*>(push(static_cast<std::size_t>(count) * sizeof(T)));
  }

  [[nodiscard]] Mark mark() const { return used_; }
  /// Frees everything pushed since `mark`.
  void pop_to(Mark mark);

  [[nodiscard]] std::size_t peak_bytes() const { return peak_; }
  [[nodiscard]] std::size_t capacity() const { return memory_.bytes(); }

 private:
  Memory memory_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

/// Frees, when it goes out of scope, what was pushed during its life.
class StackScope {
 public:
  explicit StackScope(ActivationStack& stack) : stack_(stack), mark_(stack.mark()) {}
  ~StackScope() { stack_.pop_to(mark_); }
  StackScope(const StackScope&) = delete;
  StackScope& operator=(const StackScope&) = delete;

 private:
  ActivationStack& stack_;
  ActivationStack::Mark mark_;
};

}  // namespace lockstep
