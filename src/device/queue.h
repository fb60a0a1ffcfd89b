// A queue: work of one rank on one device, executed in the order it was put in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/memory.h"

namespace lockstep {

class ThreadPool;

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kDry };

/// Base of the queues of all devices. Kernels are put in by `launch(queue, op)` (kernels/) and are
/// complete once `synchronize` returns; on the CPU each is complete when `launch` returns. Memory of the
/// device is touched by kernels, the copies below and communicators only: the host may have no access to it.
/// Used by one thread.
class Queue {
 public:
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  [[nodiscard]] DeviceKind kind() const { return kind_; }
  /// The device whose memory this queue plans: its kind, but of a dry queue the one that it stands for.
  [[nodiscard]] virtual DeviceKind planned_kind() const { return kind_; }

  /// Memory of the queue's device, zero-filled. Throws Error when there is not enough.
  virtual Memory allocate(std::size_t bytes) = 0;
  /// Memory of the host, zero-filled, that kernels can write as well: for a few results. What they wrote is
  /// there after `synchronize`. The same as `allocate` where the device is the host.
  virtual Memory allocate_for_host(std::size_t bytes) = 0;

  /// Copies host memory to the device, in order with kernels. `from` may be changed when it returns.
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  /// Copies device memory to the host, in order with kernels; complete when it returns.
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;

  /// Bytes that `allocate` and `allocate_for_host` have handed out so far, also of what was given back since; the scratch
  /// memory below is not among them.
  [[nodiscard]] virtual std::size_t allocated_bytes() const = 0;

  /// Waits until everything put in is complete.
  virtual void synchronize() = 0;
  /// Called before what kernels wrote is sent. Communication orders itself with the queue (Operation), so that
  /// devices need nothing here; a queue that only paces itself (tests/paced) does.
  virtual void hand_over() {}

  /// Scratch memory of kernels: at least `bytes`, valid for the kernel being launched only.
  /// Grows until `seal_workspace`, after which a larger request is a bug: the dry run had told
  /// the largest one.
  virtual std::byte* workspace(std::size_t bytes) = 0;
  virtual void seal_workspace() = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes() const = 0;

  /// Threads of the host for work beside the kernels; null on a queue that computes nothing.
  [[nodiscard]] virtual ThreadPool* host_threads() { return nullptr; }

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
