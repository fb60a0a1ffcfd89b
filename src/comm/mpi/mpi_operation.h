// What operations over MPI have in common: starting, polling and waiting.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "comm/mpi/group.h"

namespace lockstep {

class MpiOperation : public Operation, public Advancing {
 public:
  ~MpiOperation() override;
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  void start() final;
  bool poll() final;
  void wait() final;

 protected:
  /// `number` is the operation's in the group; a start counts as `kind` and `bytes_sent`.
  MpiOperation(MpiGroup& group, int number, TrafficKind kind, double bytes_sent)
      : group_(group), number_(number), kind_(kind), bytes_sent_(bytes_sent) {}

  /// Begins start number `generation` (1, 2, ...), the group's call `call_number`.
  virtual void begin(std::uint32_t call_number, std::uint32_t generation) = 0;
  /// Whether the host's rank number `local` has not done its part of the current start.
  [[nodiscard]] virtual bool is_missing(int local) const = 0;

  [[nodiscard]] MpiGroup& group() const { return group_; }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] std::uint32_t call_number() const { return call_number_; }
  [[nodiscard]] std::uint32_t generation() const { return generation_; }
  /// To be called once the host's ranks have all contributed: from then on something moves, and a
  /// trace shows it as communication.
  void contributed();
  /// To be called by advance() when it is complete.
  void finish();

 private:
  MpiGroup& group_;
  int number_;
  TrafficKind kind_;
  double bytes_sent_;
  std::uint32_t call_number_ = 0;
  std::uint32_t generation_ = 0;
  std::int64_t moving_since_ns_ = 0;  ///< 0: not traced, or not yet
  bool running_ = false;
};

}  // namespace lockstep
