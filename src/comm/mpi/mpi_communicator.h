// The communicator of several MPI ranks: shared memory within a host, messages between hosts.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/mpi/options.h"

namespace lockstep {

class MpiGroup;

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::unique_ptr<MpiGroup> group);
  /// Collective, except while an exception passes: the rank then ends the job and waits for nobody.
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
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
  std::unique_ptr<Operation> make_send(const void* data,
                                       std::size_t bytes,
                                       int to,
                                       int tag) override;
  std::unique_ptr<Operation> make_receive(void* data,
                                          std::size_t bytes,
                                          int from,
                                          int tag) override;
  /// Through shared memory on one host (below a microsecond when all are there).
  void all_gather(std::span<const double> mine, std::span<double> all) override;
  void broadcast(void* data, std::size_t bytes, int root) override;
  void barrier() override;
  std::vector<std::string> all_gather_text(const std::string& text) override;
  std::unique_ptr<Communicator> split(std::span<const int> color_of) override;
  [[nodiscard]] const std::vector<int>& host_of() const override;
  void poll() override;
  void set_name(const char* name) override;
  void set_time_limit(double seconds) override;
  [[nodiscard]] double bytes_sent() const override;
  [[nodiscard]] std::span<const TrafficCount> traffic() const override;

 private:
  std::unique_ptr<MpiGroup> group_;
};

}  // namespace lockstep
