// What all communication of one group of MPI ranks shares: who is where, the order of calls, and
// waiting with a limit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

#include "base/function_ref.h"
#include "comm/exchange.h"
#include "comm/mpi/control.h"
#include "comm/mpi/notices.h"
#include "comm/mpi/options.h"
#include "comm/mpi/progress.h"
#include "comm/mpi/window.h"
#include "comm/traffic.h"

namespace lockstep {

/// The calls that are not operations. An operation's number is kNumPlainCalls or more.
enum PlainCall : int {
  kCallNone,
  kCallValues,
  kCallBroadcast,
  kCallBarrier,
  kCallText,
  kCallSetUp,
  kNumPlainCalls
};

class MpiGroup {
 public:
  /// The ranks of `comm`, which this takes over (and frees); they progress together with the other
  /// groups of `progress`. Collective.
  MpiGroup(MPI_Comm comm, MpiOptions options, std::shared_ptr<Progress> progress);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  [[nodiscard]] MPI_Comm comm() const { return comm_; }
  /// The same ranks, for sends and receives: their tags are the caller's.
  [[nodiscard]] MPI_Comm message_comm() const { return message_comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return hosts_->num_ranks(); }
  [[nodiscard]] const HostMap& hosts() const { return *hosts_; }
  [[nodiscard]] int host() const { return hosts_->host_of(rank_); }
  /// The ranks of this host, in the order of the pieces of its windows, and this one's place.
  [[nodiscard]] const std::vector<int>& local_ranks() const { return hosts_->ranks_on(host()); }
  [[nodiscard]] int local_index() const { return local_index_; }
  [[nodiscard]] const MpiOptions& options() const { return options_; }
  /// What traces call it. A literal.
  [[nodiscard]] const char* name() const { return name_; }
  void set_name(const char* name) { name_ = name; }
  void set_time_limit(double seconds) { options_.time_limit_seconds = seconds; }

  /// A window of every host. Collective: every rank's `bytes` is the same.
  const SharedWindow& add_window(std::size_t bytes,
                                 SharedWindow::Pieces pieces = SharedWindow::Pieces::kOneEach);
  /// Where `data` lies: the window's number and the offset in it. False when it is in none.
  bool find(const void* data, int& window, std::size_t& offset) const;
  [[nodiscard]] const SharedWindow& window(int number) const {
    return *windows_[static_cast<std::size_t>(number)];
  }

  /// Registers an operation, which every rank makes in the same order; returns its number.
  int add_operation(std::string name);
  /// The place of an operation's control words in the block of the host's rank number `local`.
  [[nodiscard]] OperationControl& control(int operation, int local) const;

  /// Publishes that this rank begins `call` as its next; returns the number of this call.
  std::uint32_t begin_call(int call);
  /// What a call is, for messages.
  [[nodiscard]] const std::string& call_name(int call) const {
    return names_[static_cast<std::size_t>(call)];
  }
  /// Throws Error when ranks that can be seen have begun different calls.
  void check_order();
  /// Throws the Error that `rank` began `theirs` while this one began `mine`.
  [[noreturn]] void fail_order(std::uint32_t call_number, int mine, int rank, int theirs);

  [[nodiscard]] const std::shared_ptr<Progress>& progress() const { return progress_; }
  /// Throws Error when ranks are known to have gone different ways; answers their questions.
  void look_around();

  /// Calls `done` until it is true: some microseconds without giving up the core, then yielding,
  /// then sleeping. Throws Error after the time limit. `is_missing(local)` tells whether the host's
  /// rank number `local` has not done its part, for the message.
  void wait(int call,
            std::uint32_t call_number,
            FunctionRef<bool()> done,
            FunctionRef<bool(int)> is_missing);

  /// The same for a message to or from rank `peer`, which is no call of the group; `name` is what
  /// the Error calls it.
  void wait_for_peer(const std::string& name, int peer, FunctionRef<bool()> done);

  /// As Communicator::all_gather, made by `call`.
  void all_gather(int call, std::span<const double> mine, std::span<double> all);
  /// Waits for an MPI request of this rank.
  void wait_request(int call, std::uint32_t call_number, MPI_Request& request);
  /// Collective. Throws on every rank, naming `what` of two ranks, unless all ranks have the same
  /// values.
  void agree(const std::string& what, std::span<const double> values);
  std::vector<std::string> all_gather_text(const std::string& text);

  /// "rank 3 (host node7)".
  [[nodiscard]] std::string describe(int rank) const;
  /// Windows count by themselves; operations tell what they keep for their messages.
  void count_allocated(std::size_t bytes) { allocated_bytes_ += bytes; }
  [[nodiscard]] std::size_t allocated_bytes() const { return allocated_bytes_; }
  [[nodiscard]] Traffic& traffic() { return traffic_; }

 private:
  void find_hosts();
  void gather_on_host(int call, std::span<const double> mine, std::span<double> all);
  void gather_across_hosts(int call, std::span<const double> mine, std::span<double> all);
  void exchange_values(int call, std::uint32_t call_number, std::size_t width);
  [[nodiscard]] RankControl& block(int local) const;
  [[nodiscard]] Notices::Notice notice(std::uint32_t call_number, int call) const;
  /// The last call begun and its number; kCallNone before the first.
  [[nodiscard]] int last_call(std::uint32_t& call_number) const;
  void wait_until(int call,
                  std::uint32_t call_number,
                  FunctionRef<bool()> done,
                  FunctionRef<void(double seconds)> fail);
  void progress_notices(std::uint32_t call_number, int call);
  void check_notices();
  /// describe(rank) and what it was last seen in, as far as that is known.
  [[nodiscard]] std::string sighting(int rank) const;
  [[noreturn]] void fail_time_limit(int call,
                                    std::uint32_t call_number,
                                    double seconds,
                                    FunctionRef<bool(int)> is_missing);

  MPI_Comm comm_;
  const char* name_ = "ranks";
  MPI_Comm host_comm_ = MPI_COMM_NULL;
  MPI_Comm message_comm_ = MPI_COMM_NULL;
  MpiOptions options_;
  int rank_ = 0;
  int local_index_ = 0;
  std::unique_ptr<HostMap> hosts_;
  std::vector<std::string> host_names_;  ///< of every rank
  std::unique_ptr<SharedWindow> control_;
  std::vector<std::unique_ptr<SharedWindow>> operation_controls_;
  std::vector<std::unique_ptr<SharedWindow>> windows_;
  std::unique_ptr<Notices> notices_;
  std::vector<std::string> names_;
  std::shared_ptr<Progress> progress_;
  std::uint32_t calls_begun_ = 0;
  std::vector<std::uint32_t> checked_;  ///< calls of each local rank that were compared
  std::uint32_t values_sequence_ = 0;
  std::vector<double> values_out_;
  std::vector<double> values_in_;
  bool gave_up_ = false;  ///< on a wait
  Traffic traffic_;
  std::size_t allocated_bytes_ = 0;
};

}  // namespace lockstep
