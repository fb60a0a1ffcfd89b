// Short notices among ranks of different hosts about where they are, sent only by ranks that have
// waited long. They find ranks that make different calls, and name those that are missing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <mpi.h>

#include "comm/exchange.h"

namespace lockstep {

class Notices {
 public:
  struct Notice {
    std::int64_t call_number = 0;  ///< the call it waits in, or its last one
    std::int64_t call = 0;         ///< what that call is
    std::int64_t calls_begun = 0;
    std::int64_t is_question = 0;
  };

  /// For the ranks of `comm`, which outlives this; uses tag kTag of it.
  Notices(MPI_Comm comm, const HostMap& hosts, int rank);
  ~Notices();
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;

  /// Sends `mine` to every rank on other hosts, except where the last one has not left yet.
  void ask(Notice mine);
  /// Takes in what came and answers questions with `mine`. Never waits; no allocation.
  void progress(Notice mine);

  /// Ranks on other hosts.
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  /// The newest notice of ranks()[index]; calls_begun is 0 as long as none came.
  [[nodiscard]] const Notice& last(std::size_t index) const { return last_[index]; }

  static constexpr int kTag = 0;

 private:
  void send(std::size_t index, Notice notice);

  MPI_Comm comm_;
  std::vector<int> ranks_;
  std::vector<Notice> incoming_;
  std::vector<Notice> outgoing_;
  std::vector<Notice> last_;
  std::vector<MPI_Request> receives_;
  std::vector<MPI_Request> sends_;
};

}  // namespace lockstep
