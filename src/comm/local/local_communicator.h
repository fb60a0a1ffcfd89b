// The group of one rank: every collective is complete at once.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace lockstep {

class LocalCommunicator final : public Communicator {
 public:
  /// `progress`: what `poll` calls, for a group that was split from one of several ranks.
  explicit LocalCommunicator(std::function<void()> progress = {})
      : progress_(std::move(progress)) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  Memory allocate(std::size_t bytes) override;
  Memory allocate_shared(std::size_t bytes) override;
  [[nodiscard]] bool takes_shared() const override;
  [[nodiscard]] std::size_t allocated_bytes() const override;
  std::unique_ptr<Operation> make_all_reduce(float* data, long count, Reduction reduction) override;
  std::unique_ptr<Operation> make_reduce_scatter(float* data,
                                                 long count,
                                                 long chunk = kChunkElements) override;
  std::unique_ptr<Operation> make_all_gather(void* data,
                                             std::size_t bytes,
                                             std::size_t chunk_bytes,
                                             std::function<void()> contribute = {}) override;
  /// Always throw Error: there is no other rank.
  std::unique_ptr<Operation> make_send(const void* data,
                                       std::size_t bytes,
                                       int to,
                                       int tag) override;
  std::unique_ptr<Operation> make_receive(void* data,
                                          std::size_t bytes,
                                          int from,
                                          int tag) override;
  void all_gather(std::span<const double> mine, std::span<double> all) override;
  void broadcast(void* data, std::size_t bytes, int root) override;
  void barrier() override {}
  std::vector<std::string> all_gather_text(const std::string& text) override { return {text}; }
  std::unique_ptr<Communicator> split(std::span<const int> color_of) override;
  [[nodiscard]] const std::vector<int>& host_of() const override { return host_of_; }
  void poll() override;
  void set_time_limit(double /*seconds*/) override {}
  [[nodiscard]] double bytes_sent() const override { return traffic_.bytes(); }
  [[nodiscard]] std::span<const TrafficCount> traffic() const override { return traffic_.counts(); }

 private:
  std::function<void()> progress_;
  Traffic traffic_;
  std::vector<Memory> memory_;
  std::vector<int> host_of_{0};
};

}  // namespace lockstep
