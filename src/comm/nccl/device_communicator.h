// What groups of ranks with a GPU each have in common: control goes through the host, memory is the GPU's.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/function_ref.h"
#include "comm/communicator.h"
#include "comm/nccl/device_progress.h"
#include "device/cuda/cuda_queue.h"

namespace lockstep {

/// Of a group of one rank: there is nothing to exchange.
class NothingToExchange final : public Operation {
 public:
  explicit NothingToExchange(std::function<void()> contribute = {})
      : contribute_(std::move(contribute)) {}
  void start() override {
    if (contribute_) {
      contribute_();
    }
  }
  bool poll() override { return true; }
  void wait() override {}

 private:
  std::function<void()> contribute_;
};

/// Derived classes move data. Memory of the device comes from the queue, but counts as the group's.
class DeviceCommunicator : public Communicator {
 public:
  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  [[nodiscard]] Communicator& host() override { return *host_; }

  Memory allocate(std::size_t bytes) override;
  /// Of this rank's own: GPUs share none.
  Memory allocate_shared(std::size_t bytes) override { return allocate(bytes); }
  [[nodiscard]] bool takes_shared() const override { return true; }
  [[nodiscard]] std::size_t allocated_bytes() const override {
    return allocated_bytes_ + host_->allocated_bytes();
  }

  /// Values and bytes of the host.
  void all_gather(std::span<const double> mine, std::span<double> all) override;
  void broadcast(void* data, std::size_t bytes, int root) override;
  void barrier() override;
  std::vector<std::string> all_gather_text(const std::string& text) override;
  [[nodiscard]] const std::vector<int>& host_of() const override { return host_->host_of(); }
  void poll() override;
  void set_name(const char* name) override;
  void set_time_limit(double seconds) override;
  [[nodiscard]] double bytes_sent() const override;
  [[nodiscard]] std::span<const TrafficCount> traffic() const override;

  [[nodiscard]] CudaQueue& queue() const { return *queue_; }
  [[nodiscard]] DeviceProgress& progress() const { return *progress_; }
  [[nodiscard]] double time_limit() const { return time_limit_; }
  [[nodiscard]] const char* name() const { return name_; }
  void count(TrafficKind kind, double bytes) { traffic_.count(kind, bytes); }
  /// Lets everything progress until `done`; throws Error, naming `what`, after the time limit.
  void wait_until(FunctionRef<bool()> done, const char* what);

 protected:
  /// `progress` is shared with the groups split from this one.
  DeviceCommunicator(std::unique_ptr<Communicator> host,
                     CudaQueue& queue,
                     std::shared_ptr<DeviceProgress> progress);
  /// What operations take beside the buffers that they work on.
  void count_allocated(std::size_t bytes) { allocated_bytes_ += bytes; }
  [[nodiscard]] const std::shared_ptr<DeviceProgress>& shared_progress() const { return progress_; }

 private:
  std::unique_ptr<Communicator> host_;
  CudaQueue* queue_;
  std::shared_ptr<DeviceProgress> progress_;
  std::size_t allocated_bytes_ = 0;
  double time_limit_ = 600;
  const char* name_ = "ranks";
  Traffic traffic_;
  mutable Traffic all_traffic_;  ///< with the host's, as traffic() shows it
};

}  // namespace lockstep
