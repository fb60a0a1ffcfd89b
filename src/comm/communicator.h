// Communication among the ranks of a group.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/integers.h"
#include "device/memory.h"
#include "device/queue.h"

namespace lockstep {

/// A communication that is set up once and then started in every step (like MPI's persistent
/// requests). It progresses only inside `poll` and `wait` of this or any other operation of the
/// communicator: call `poll` between layers.
/// Collective: every rank starts the operations of a communicator in the same order.
class Operation {
 public:
  Operation() = default;
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Begins. The buffer must hold this rank's contribution and is not to be touched until done.
  /// Never waits for another rank. No allocation.
  virtual void start() = 0;
  /// Does what can be done without waiting; true when this rank's result is complete.
  virtual bool poll() = 0;
  /// Polls until done. Throws Error, naming the operation and the ranks that are missing, after the
  /// communicator's time limit.
  virtual void wait() = 0;
};

/// How reductions are computed.
enum class Reduction { kOrdered, kNative };

/// The ranks of a group. Every function marked collective is called by all of them in the same
/// order. Used by one thread of a rank.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Memory, zero-filled, that ranks of one host can read and write directly. Buffers of ordered
  /// reductions must come from here. Collective; every rank asks for the same size.
  virtual Memory allocate(std::size_t bytes) = 0;

  /// data = sum over the ranks, on every rank, in f32 in the order of the aligned tree over the
  /// ranks (kOrdered), or in the library's own order (kNative). `data` lies in memory from
  /// `allocate`, at the same offset on every rank. Collective.
  /// Ordered, P ranks: each sends and receives 2 (P-1)/P of the buffer.
  virtual std::unique_ptr<Operation> make_all_reduce(float* data,
                                                     long count,
                                                     Reduction reduction) = 0;

  /// As make_all_reduce, but only data[part_of(chunks, size, rank)] (in chunks of 4,096 elements,
  /// count is a multiple) holds the sum afterwards; the rest is undefined. Collective.
  virtual std::unique_ptr<Operation> make_reduce_scatter(float* data, long count) = 0;

  /// Every rank's part, part_of(chunks, size, r) of `data` in chunks of chunk_bytes, reaches every
  /// other rank. bytes is a multiple of chunk_bytes; same memory rule as make_all_reduce. Collective.
  virtual std::unique_ptr<Operation> make_all_gather(void* data,
                                                     std::size_t bytes,
                                                     std::size_t chunk_bytes) = 0;

  /// all[r * mine.size() + i] = mine[i] of rank r. For a few numbers (at most kMaxValues a rank).
  /// Collective; waits for the others.
  virtual void all_gather(std::span<const double> mine, std::span<double> all) = 0;
  static constexpr int kMaxValues = 256;

  /// Copies root's bytes to all. Collective; waits.
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  /// Collective; waits until all are here.
  virtual void barrier() = 0;
  /// text of every rank, by rank. Collective; waits. For start-up and errors.
  virtual std::vector<std::string> all_gather_text(const std::string& text) = 0;

  /// The ranks with the same `color`, ordered by this group's ranks. Collective.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// Host number of every rank (0, 1, ... in order of first appearance).
  [[nodiscard]] virtual const std::vector<int>& host_of() const = 0;

  /// Lets started operations progress; cheap when there are none.
  virtual void poll() = 0;

  /// Gives up after this many seconds of waiting for other ranks; 0: never.
  virtual void set_time_limit(double seconds) = 0;

  /// Bytes this rank has sent to others so far (copies through shared memory included).
  [[nodiscard]] virtual double bytes_sent() const = 0;

 protected:
  Communicator() = default;
};

}  // namespace lockstep
