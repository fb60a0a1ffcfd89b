// Reductions in the order of the aligned tree, and gathers, through shared memory and messages.
//
// On a host, two synchronisations an operation: a rank says "ready" when its contribution stands in
// its buffer, and "done" when it needs the other ranks' buffers no more. Between the two, when all
// are ready, every handler of a slice (comm/exchange.h) adds the slice up from all buffers and
// writes the result into them: of a slice nobody but its handler reads or writes anything then.
// A rank is complete when all are done. It needs no further barrier before it writes to its buffer
// and starts again: all others have read what they need of the buffer and written what they owe
// it; those that have not yet seen its "done" find the word still there, or already replaced by a
// later one, and both count. Its next "done" cannot come before all are ready again.
//
// A gather into memory of which the host has one copy needs the same two: "ready" says that the rank reads
// what stood there no more, then every rank writes its slice, and handlers receive theirs, in place.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "comm/exchange.h"
#include "comm/mpi/mpi_operation.h"
#include "comm/mpi/tree_add.h"

namespace lockstep {

class OrderedOperation final : public MpiOperation {
 public:
  struct Buffer {
    int window = 0;
    std::size_t offset = 0;  ///< in bytes, the same on every rank
    long count = 0;          ///< items
    long chunk = 0;          ///< items
    std::size_t item_bytes = 0;
  };

  /// Collective. Allocates everything the starts need, buffers of messages included.
  OrderedOperation(MpiGroup& group,
                   int number,
                   Exchange exchange,
                   Buffer buffer,
                   std::function<void()> contribute);
  ~OrderedOperation() override;
  OrderedOperation(const OrderedOperation&) = delete;
  OrderedOperation& operator=(const OrderedOperation&) = delete;

  bool advance() override;

 private:
  /// A node that this rank adds up for the owner of a slice.
  struct NodeSum {
    TreeAdd add;
    std::vector<const float*> inputs;
    std::vector<float> sum;
  };
  /// Values that come from another host.
  struct Arrival {
    int from = 0;
    std::vector<float> values;
  };
  /// A slice of an owner on another host that this rank handles on its own host.
  struct Foreign {
    int owner = 0;
    IndexRange slice;
    std::vector<NodeSum> sums;  ///< of the nodes that are more than one rank
    std::vector<float*> nodes;  ///< what is sent, one a node
    std::vector<MPI_Request> node_sends;
    MPI_Request result_receive = MPI_REQUEST_NULL;
    enum class Stage { kWaiting, kSending, kReceiving, kDone } stage = Stage::kWaiting;
  };

  void begin(std::uint32_t call_number, std::uint32_t generation) override;
  [[nodiscard]] bool is_missing(int local) const override;
  void plan_own();
  void plan_foreign(int owner);
  [[nodiscard]] std::byte* at(int local, long item) const;
  [[nodiscard]] bool reduces() const { return !is_gather(exchange_); }
  [[nodiscard]] bool gathers() const { return exchange_ != Exchange::kReduceScatter; }
  bool all_ready();
  bool all_done() const;
  bool advance_own();
  bool advance_foreign(Foreign& foreign);
  void send_nodes(Foreign& foreign);
  void send_result(std::size_t index);
  void copy_to_host(IndexRange slice);
  [[nodiscard]] int node_tag() const { return 1 + 2 * number(); }
  [[nodiscard]] int result_tag() const { return 2 + 2 * number(); }

  Exchange exchange_;
  Buffer buffer_;
  std::function<void()> contribute_;  ///< writes the own slice when all are ready; may be empty
  IndexRange own_;
  std::vector<TreeAdd> own_sum_;  ///< one, or none where nothing is to be added
  std::vector<const float*> own_inputs_;
  std::vector<float*> own_outputs_;
  std::vector<Arrival> arrivals_;  ///< nodes of other hosts for the own slice
  std::vector<MPI_Request> node_receives_;
  std::vector<int> result_to_;
  std::vector<MPI_Request> result_sends_;
  std::vector<Foreign> foreigns_;
  bool ready_ = false;      ///< all of the host were ready
  bool own_sent_ = false;   ///< the own slice is final and on its way
  bool published_ = false;  ///< this rank said "done"
};

}  // namespace lockstep
