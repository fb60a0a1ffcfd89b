// A queue: work of one rank on one device, executed in the order it was put in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/memory.h"

namespace lockstep {

enum class DeviceKind : std::uint8_t { kCpu, kDry };

/// Base of the queues of all devices. Kernels are put in by `launch(queue, op)` (kernels/) and are
/// complete once `synchronize` returns; on the CPU each is complete when `launch` returns.
/// Used by one thread.
class Queue {
 public:
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  [[nodiscard]] DeviceKind kind() const { return kind_; }

  /// Memory of the queue's device. Throws Error when there is not enough.
  virtual Memory allocate(std::size_t bytes) = 0;

  /// Bytes that `allocate` has handed out so far, also of what was given back since; the scratch
  /// memory below is not among them.
  [[nodiscard]] virtual std::size_t allocated_bytes() const = 0;

  /// Waits until everything put in is complete.
  virtual void synchronize() = 0;

  /// Scratch memory of kernels: at least `bytes`, valid for the kernel being launched only.
  /// Grows until `seal_workspace`, after which a larger request is a bug: the dry run had told
  /// the largest one.
  virtual std::byte* workspace(std::size_t bytes) = 0;
  virtual void seal_workspace() = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;

  /// Floating-point operations (a multiply-add is two) of the matrix products and attentions put in so
  /// far; `launch` counts them.
  [[nodiscard]] double operations() const { return operations_; }
  void count_operations(double operations) { operations_ += operations; }

 protected:
  explicit Queue(DeviceKind kind) : kind_(kind) {}

 private:
  DeviceKind kind_;
  double operations_ = 0;
};

}  // namespace lockstep
