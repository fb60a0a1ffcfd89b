// GPUs that exchange data through the memory of their hosts: for several ranks on one GPU, where NCCL refuses to
// work, and to check NCCL's results.
#pragma once

#include "comm/nccl/device_communicator.h"

namespace lockstep {

class StagedOperation;

/// Operations of one group that are on their way, and their stream. The host begins them in the order in which they
/// were started: ranks begin collectives alike, and messages of one tag keep their order.
class StagedOrder {
 public:
  explicit StagedOrder(cudaStream_t stream) : stream_(stream) {}

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  /// For one more operation, so that `add` does not allocate.
  void make_room();
  void add(StagedOperation& operation) { copying_.push_back(&operation); }
  void forget(StagedOperation& operation);
  /// Does what can be done without waiting.
  void advance();

 private:
  cudaStream_t stream_;
  std::size_t num_operations_ = 0;
  std::vector<StagedOperation*> copying_;  ///< to the host
  std::vector<StagedOperation*> on_host_;
};

/// Every operation copies to a buffer of the host, lets the host's group do its work, and copies back. The order
/// of sums, and so the bits, are the host's. Cost: the host's, and two copies over the bus; a host buffer of the
/// size of every operation's.
class StagedCommunicator final : public DeviceCommunicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host,
                     CudaQueue& queue,
                     std::shared_ptr<DeviceProgress> progress);
  ~StagedCommunicator() override;
  StagedCommunicator(const StagedCommunicator&) = delete;
  StagedCommunicator& operator=(const StagedCommunicator&) = delete;

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
  std::unique_ptr<Communicator> split(std::span<const int> color_of) override;

 private:
  StagedOrder order_;
  int task_;
};

}  // namespace lockstep
