// The dry device: computes nothing and records what would have been computed.
#pragma once

#include <cstdint>
#include <functional>

#include "device/queue.h"

namespace lockstep {

/// What one kernel launch costs.
struct Cost {
  double operations = 0;  ///< floating-point operations, a fused multiply-add counted as two
  double bytes = 0;       ///< least bytes read and written
};

/// Records the cost of every launch. Its memory is an address range that must not be touched.
/// A derived queue may hand out real memory and take its time over every launch (tests/paced).
class DryQueue : public Queue {
 public:
  /// `planned`: the device it stands for, as scratch memory of kernels differs.
  explicit DryQueue(DeviceKind planned = DeviceKind::kCpu)
      : Queue(DeviceKind::kDry), planned_(planned) {}

  [[nodiscard]] DeviceKind planned_kind() const override { return planned_; }
  Memory allocate(std::size_t bytes) override;
  Memory allocate_for_host(std::size_t bytes) override { return allocate(bytes); }
  void copy_to_device(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {}
  void copy_to_host(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) override {}
  void synchronize() override {}
  /// Remembers the largest request; the result must not be touched.
  std::byte* workspace(std::size_t bytes) override;
  void seal_workspace() override {}
  [[nodiscard]] std::size_t workspace_bytes() const override { return workspace_bytes_; }

  /// Adds a launch of kernel `name` to the totals and tells the listener, if any.
  void record(const char* name, Cost cost);
  void listen(std::function<void(const char* name, Cost cost)> listener) {
    listener_ = std::move(listener);
  }

  [[nodiscard]] Cost total() const { return total_; }
  [[nodiscard]] std::size_t allocated_bytes() const override { return allocated_bytes_; }

 private:
  DeviceKind planned_;
  std::size_t workspace_bytes_ = 0;
  std::size_t allocated_bytes_ = 0;
  Cost total_;
  std::function<void(const char*, Cost)> listener_;
};

}  // namespace lockstep
