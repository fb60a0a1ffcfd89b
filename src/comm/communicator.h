// Communication among the ranks of a group.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/integers.h"
#include "comm/traffic.h"
#include "device/memory.h"
#include "device/queue.h"
#include "kernels/reduce.h"

namespace lockstep {

/// A communication that is set up once and then started in every step (like MPI's persistent
/// requests). It progresses only inside `poll` and `wait` of this or any other operation of the
/// communicator or a related one (see Communicator): call `poll` between layers.
/// Collective, but for sends and receives: every rank starts the operations of a communicator in
/// the same order. Destroy it before its communicator.
class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Begins. The buffer must hold this rank's contribution and is not to be touched until done. On a device
  /// with a queue: after what is in the queue now, and the queue goes on meanwhile.
  /// Not to be called before the last start is done. Never waits for another rank. No allocation.
  virtual void start() = 0;
  /// Does what can be done without waiting; true when this rank's result is complete and the
  /// buffer is free again (also when it was never started). Throws Error when ranks turn out to
  /// have started different operations.
  virtual bool poll() = 0;
  /// Polls until done; on a device with a queue only what is put in from now on waits. Throws Error, naming the operation and the ranks that are missing, after the
  /// communicator's time limit.
  virtual void wait() = 0;
};

/// How reductions are computed.
enum class Reduction { kOrdered, kNative };

/// The ranks of a group. Every function marked collective is called by all of them in the same
/// order; ranks that call different ones, or with different sizes, get an Error that names both.
///
/// The world and all groups split from it, directly or in steps, are related: `poll` of one, and
/// any wait in one, lets the operations of all progress, so that a rank that waits in one group
/// holds up no other (also where the group polled is the rank alone). An Error of one may thus come
/// out of a call of another; after it none of them is of further use. All are used by one thread of
/// a rank. Related groups may be destroyed in any order that is the same on their ranks, once their
/// operations are done: destroying waits for the group's other ranks and lets nothing progress.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// The same ranks for data in memory of the host: what the operations below move lies in memory of the
  /// device of the rank's queue. The same group where that is the host.
  [[nodiscard]] virtual Communicator& host() { return *this; }

  /// What a group's operations will be: collectives, or messages to the next and previous rank (around).
  enum class Connections { kCollectives, kNeighbours };
  /// Sets up what such operations need; before the first of them is made. Collective; waits. Nothing where no
  /// set-up is needed.
  virtual void connect(Connections /*connections*/) {}

  /// Memory of the device, zero-filled, that ranks of one host can read and write directly. Buffers of ordered
  /// reductions must come from here. It stays valid until the communicator
  /// is destroyed, whatever happens to the Memory: releasing it must not need the other ranks.
  /// Collective; every rank asks for the same size.
  virtual Memory allocate(std::size_t bytes) = 0;
  /// The same, but one copy for all ranks of a host, taken by the first of them (takes_shared). For
  /// make_all_gather only. Collective; every rank asks for the same size.
  virtual Memory allocate_shared(std::size_t bytes) = 0;
  /// Whether memory of allocate_shared counts as taken by this rank.
  [[nodiscard]] virtual bool takes_shared() const = 0;
  /// What a group of several ranks takes is a multiple of this.
  static constexpr std::size_t kPage = 4096;

  /// Bytes this rank has taken so far: by `allocate`, and for the messages of its operations (see
  /// message_items in comm/exchange.h).
  [[nodiscard]] virtual std::size_t allocated_bytes() const = 0;

  /// data = sum over the ranks, on every rank, in f32 in the order of the aligned tree over the
  /// ranks (kOrdered), or in the library's own order (kNative). `data` lies in memory from
  /// `allocate`, at the same offset on every rank. Collective.
  /// Ordered, P ranks: each sends and receives 2 (P-1)/P of the buffer.
  virtual std::unique_ptr<Operation> make_all_reduce(float* data,
                                                     long count,
                                                     Reduction reduction) = 0;

  /// As an ordered make_all_reduce, but only this rank's slice, slice_of(count, chunk, size, rank)
  /// of comm/exchange.h, holds the sum afterwards; the rest is undefined. count is a multiple of
  /// chunk (elements). The sums do not depend on chunk. Collective.
  virtual std::unique_ptr<Operation> make_reduce_scatter(float* data,
                                                         long count,
                                                         long chunk = kChunkElements) = 0;

  /// Every rank's part, part_of(chunks, size, r) of `data` in chunks of chunk_bytes, reaches every
  /// other rank. bytes is a multiple of chunk_bytes; same memory rule as make_all_reduce. Collective.
  ///
  /// In memory of allocate_shared nothing is copied on a host. `contribute`, if given, writes this rank's
  /// part to `data`; it is called within a start, poll or wait, once all ranks of the host have started and
  /// so need what stood there no more. Without it the part is there at the start, which is for memory
  /// that nobody reads then.
  virtual std::unique_ptr<Operation> make_all_gather(void* data,
                                                     std::size_t bytes,
                                                     std::size_t chunk_bytes,
                                                     std::function<void()> contribute = {}) = 0;

  /// Sends `bytes` bytes to rank `to`, which receives as many with the same tag (0 to kMaxTag). The
  /// data may lie in any memory of the host. Not collective: only the two ranks make and start the
  /// operations, each in its own order among its others; messages of one sender and tag
  /// arrive in the order of their starts. Done when `data` may be written again, which for large
  /// messages within a host is not before the receive is started; between hosts, MPI keeps what
  /// comes before its receive is started. A message of 0 bytes is a signal.
  /// Throws Error when `to` is no other rank of the group. Waiting throws Error, naming the message
  /// and the peer, after the time limit. Cost: one message for every 256 MiB begun; to another host
  /// for every 60 KiB, so that they move while both ranks compute.
  virtual std::unique_ptr<Operation> make_send(const void* data,
                                               std::size_t bytes,
                                               int to,
                                               int tag) = 0;
  /// The other end of make_send. Done when the data is there. Throws Error, in poll or wait, when a
  /// message of another size came.
  virtual std::unique_ptr<Operation> make_receive(void* data,
                                                  std::size_t bytes,
                                                  int from,
                                                  int tag) = 0;
  static constexpr int kMaxTag = 32767;  ///< what every MPI library allows

  /// all[r * mine.size() + i] = mine[i] of rank r. For a few numbers (at most kMaxValues a rank).
  /// Collective; waits for the others. No allocation.
  virtual void all_gather(std::span<const double> mine, std::span<double> all) = 0;
  static constexpr int kMaxValues = 256;

  /// Copies root's bytes to all. Collective; waits.
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  /// Collective; waits until all are here.
  virtual void barrier() = 0;
  /// text of every rank, by rank. Collective; waits. For start-up and errors.
  virtual std::vector<std::string> all_gather_text(const std::string& text) = 0;

  /// The ranks with this rank's color, ordered by this group's ranks. color_of[r] is the color of
  /// rank r, the same on every rank (so that a described group can be split as well). The result
  /// keeps the time limit and is related to this communicator (see above). Collective.
  virtual std::unique_ptr<Communicator> split(std::span<const int> color_of) = 0;

  /// Host number of every rank (0, 1, ... in order of first appearance).
  [[nodiscard]] virtual const std::vector<int>& host_of() const = 0;

  /// Lets started operations of this and all related groups progress; cheap when there are none.
  virtual void poll() = 0;

  /// What traces call this group. A literal.
  virtual void set_name(const char* /*name*/) {}

  /// Gives up after this many seconds of waiting for other ranks; 0: never.
  virtual void set_time_limit(double seconds) = 0;

  /// Bytes this rank has sent to others so far, copies through shared memory included. An operation
  /// counts when it starts, as `items_sent_by` (comm/exchange.h) says: on one host, and on hosts
  /// of one rank each, with S = this rank's part of an N-byte buffer,
  ///   all-reduce N - S + (P-1) S, reduce-scatter N - S, all-gather (P-1) S,
  /// in memory that a host shares S for its ranks together and S for each other host.
  /// A native all-reduce counts as 2 (P-1)/P N, an all_gather of values as 8 (P-1) a value, a
  /// broadcast as (P-1) times its bytes at the root, a send as its bytes. Barriers and texts do not
  /// count.
  [[nodiscard]] virtual double bytes_sent() const = 0;
  /// Calls and bytes sent by kind: one entry for each TrafficKind, in that order. The bytes add up
  /// to bytes_sent(). An operation is a call whenever it starts; a receive is none. Valid while the
  /// communicator lives.
  [[nodiscard]] virtual std::span<const TrafficCount> traffic() const = 0;

 protected:
  Communicator() = default;
};

}  // namespace lockstep
