// GPUs that exchange data by NCCL.
#pragma once

#include <vector>

#include <nccl.h>

#include "comm/exchange.h"
#include "comm/nccl/device_communicator.h"

namespace lockstep {

/// One NCCL communicator and the stream on which its operations run in order.
class NcclLink {
 public:
  explicit NcclLink(CudaQueue& queue) : stream_(queue.add_stream()) {}
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  [[nodiscard]] ncclComm_t comm() const { return comm_; }
  [[nodiscard]] ncclComm_t* address() { return &comm_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  /// Throws Error when something went wrong on the device or on another rank.
  void check() const;
  /// Whether what was begun without waiting, initialisation, is complete.
  [[nodiscard]] bool is_ready() const;

 private:
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_;
};

/// Ordered sums: every rank sends the other ranks their slices, adds up its own in the order of the aligned
/// tree, and sends it to all: the bytes of a ring, and the bits of the CPU's sums. Receives have buffers of their
/// own, of (ranks - 1) slices (message_items of comm/exchange.h, where every rank is a host).
///
/// Messages between two ranks have one NCCL communicator and stream for each direction and parity of the tag, as
/// one that waits for its receiver holds up all behind it on a stream: of a pipeline activations (even tags) and
/// gradients (odd) never wait for each other. Only neighbours in the ring of ranks may exchange messages.
class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host,
                   CudaQueue& queue,
                   std::shared_ptr<DeviceProgress> progress);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  void connect(Connections connections) override;
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
  /// A stream of messages from one rank to another.
  struct Channel {
    int from = 0;
    int to = 0;
    int parity = 0;
    std::unique_ptr<NcclLink> link;
  };
  /// Initialises links together: `ids[i]` is what rank `roots[i]` made.
  struct Beginning {
    NcclLink* link = nullptr;
    int root = 0;
    int rank = 0;
    int size = 0;
  };
  void begin(const std::vector<Beginning>& links);
  [[nodiscard]] std::vector<Beginning> add_channels();
  [[nodiscard]] NcclLink& group_link();
  [[nodiscard]] NcclLink& channel(int from, int to, int tag);
  void check();
  std::unique_ptr<Operation> make_exchange(TrafficKind kind,
                                           Exchange exchange,
                                           std::byte* data,
                                           long count,
                                           long chunk,
                                           std::size_t item_bytes,
                                           std::function<void()> contribute = {});

  HostMap hosts_;  ///< every rank is one
  std::unique_ptr<NcclLink> link_;
  std::vector<Channel> channels_;  ///< of this rank
  int task_ = -1;
};

}  // namespace lockstep
