// The dry communicator: one rank of a described group. It moves nothing and records what a real
// group would have moved.
#pragma once

#include <functional>
#include <optional>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/transport.h"

namespace lockstep {

/// One communication of the group, as rank `rank` saw it.
struct DryCall {
  const char* name = "";              ///< of its kind, or receive, barrier, text
  double buffer_bytes = 0;            ///< of the whole buffer
  double bytes_sent = 0;              ///< by this rank, as Communicator::bytes_sent counts
  std::optional<TrafficKind> kind{};  ///< none for what sends nothing: receive, barrier, text
  int peer = -1;                      ///< the other rank of a send or receive, and its tag
  int tag = -1;
};

/// Every collective completes at once, as if the other ranks held the same values as this one.
/// Memory is an address range that must not be touched.
class DryCommunicator final : public Communicator {
 public:
  using Listener = std::function<void(const DryCommunicator& group, const DryCall& call)>;

  /// The group has one rank for every entry of host_of; entries that are equal share a host. Of ranks with
  /// GPUs (kNccl) every one is for itself; kStaged has a buffer of the host for every operation.
  DryCommunicator(int rank,
                  const std::vector<long>& host_of,
                  Transport transport = Transport::kHost);

  /// `listener` hears of every start of an operation and every other collective of this group and
  /// of those split off it later.
  void listen(Listener listener) { listener_ = std::move(listener); }
  [[nodiscard]] long num_calls() const { return num_calls_; }
  [[nodiscard]] const HostMap& hosts() const { return hosts_; }
  /// Counts a communication and tells the listener. No allocation.
  void record(const DryCall& call);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return hosts_.num_ranks(); }
  Memory allocate(std::size_t bytes) override;
  Memory allocate_shared(std::size_t bytes) override;
  [[nodiscard]] bool takes_shared() const override;
  [[nodiscard]] std::size_t allocated_bytes() const override {
    return allocated_bytes_ + message_bytes_;
  }
  std::unique_ptr<Operation> make_all_reduce(float* data, long count, Reduction reduction) override;
  std::unique_ptr<Operation> make_reduce_scatter(float* data,
                                                 long count,
                                                 long chunk = kChunkElements) override;
  std::unique_ptr<Operation> make_all_gather(void* data,
                                             std::size_t bytes,
                                             std::size_t chunk_bytes,
                                             std::function<void()> contribute = {}) override;
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
  void barrier() override;
  /// This rank's text for every rank.
  std::vector<std::string> all_gather_text(const std::string& text) override;
  std::unique_ptr<Communicator> split(std::span<const int> color_of) override;
  [[nodiscard]] const std::vector<int>& host_of() const override { return hosts_.host_of(); }
  void poll() override {}
  void set_time_limit(double /*seconds*/) override {}
  [[nodiscard]] double bytes_sent() const override { return traffic_.bytes(); }
  [[nodiscard]] std::span<const TrafficCount> traffic() const override { return traffic_.counts(); }

 private:
  std::unique_ptr<Operation> make(TrafficKind kind,
                                  Exchange exchange,
                                  long count,
                                  long chunk,
                                  long item_bytes,
                                  std::function<void()> contribute = {});

  /// An exchange and what it takes.
  struct Counted {
    Exchange exchange = Exchange::kAllReduce;
    long count = -1;
    long chunk = 0;
    long message_items = 0;
    double items_sent = 0;
  };

  /// A buffer of the host for an operation, where that is the transport.
  void stage(std::size_t bytes);

  int rank_;
  Transport transport_;
  HostMap hosts_;
  Counted last_;
  Listener listener_;
  long num_calls_ = 0;
  Traffic traffic_;
  std::size_t allocated_bytes_ = 0;  ///< by `allocate` and, where it counts here, `allocate_shared`
  std::size_t shared_bytes_ = 0;     ///< by `allocate_shared`
  std::size_t message_bytes_ = 0;
};

}  // namespace lockstep
