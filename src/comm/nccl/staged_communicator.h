// GPUs that exchange data through the memory of their hosts: for several ranks on one GPU, where NCCL refuses to
// work, and to check NCCL's results.
#pragma once

#include "comm/nccl/device_communicator.h"

namespace lockstep {

/// Every operation copies to a buffer of the host, lets the host's group do its work, and copies back. The order
/// of sums, and so the bits, are the host's. Cost: the host's, and two copies over the bus; a host buffer of the
/// size of every operation's.
class StagedCommunicator final : public DeviceCommunicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> host,
                     CudaQueue& queue,
                     std::shared_ptr<DeviceProgress> progress);

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
  cudaStream_t stream_;
};

}  // namespace lockstep
