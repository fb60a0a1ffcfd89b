// Start-up and end of MPI, and the group of all ranks.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/mpi/options.h"

namespace lockstep {

/// MPI for the time of the program. A process that no launcher started is one rank and never
/// initialises MPI (which costs some tenths of a second), and therefore never finalises it; nor
/// does this finalise what others initialised. One a process, on the main thread.
class MpiRuntime {
 public:
  /// Initialises MPI (MPI_THREAD_MULTIPLE) where mpirun, srun --mpi=pmix or another launcher
  /// started the process.
  MpiRuntime(int& argc, char**& argv);
  /// Finalises MPI if the constructor initialised it: collective, except while an exception passes.
  /// A program that fails calls `abort` while this lives.
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  /// Whether MPI runs; false in a process that is alone.
  [[nodiscard]] bool has_mpi() const { return has_mpi_; }
  [[nodiscard]] int global_rank() const { return global_rank_; }
  [[nodiscard]] int global_size() const { return global_size_; }
  /// Rank among the ranks that share this host's memory, and their number. Never taken from the
  /// environment, which launchers fill differently. The first call is collective.
  [[nodiscard]] int local_rank();
  [[nodiscard]] int local_size();
  [[nodiscard]] const std::string& host_name() const { return host_name_; }
  /// "Open MPI v4.1.4, ..."
  [[nodiscard]] static std::string library_version();

  /// To be called before work that must be done once. Throws RequestError when the process is alone
  /// although its Slurm step has several tasks: srun had no PMI, and every task would do it.
  void refuse_lonely_slurm_task() const;

  /// Ends all ranks of the job at once, without destructors; the exit status is `code`.
  [[noreturn]] void abort(int code) const;

 private:
  void find_local();

  bool has_mpi_ = false;
  bool owns_mpi_ = false;
  int global_rank_ = 0;
  int global_size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 0;
  std::string host_name_;
};

/// The group of all ranks; without MPI or with one rank, the local communicator. Collective.
/// Throws Error, naming the ranks that are missing, when not all have called it within the time
/// limit. Destroy it before the runtime.
std::unique_ptr<Communicator> make_world(const MpiRuntime& runtime, const MpiOptions& options);

}  // namespace lockstep
