#include "comm/mpi/runtime.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

#include <mpi.h>

#include <unistd.h>

#include "base/error.h"
#include "comm/local/local_communicator.h"
#include "comm/mpi/group.h"
#include "comm/mpi/mpi_call.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/progress.h"
#include "comm/mpi/roll_call.h"

namespace lockstep {
namespace {

// What launchers set for a process that is to find its peers: mpirun, PMIx (srun --mpi=pmix, prun),
// PMI 1 and 2 (srun --mpi=pmi2, hydra).
constexpr std::array kLauncherVariables{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};

bool is_launched() {
  return std::any_of(kLauncherVariables.begin(), kLauncherVariables.end(), [](const char* name) {
    return std::getenv(name) != nullptr;
  });
}

}  // namespace

MpiRuntime::MpiRuntime(int& argc, char**& argv) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  host_name_ = name.data();

  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0 && is_launched()) {
    int provided = 0;
    mpi_call(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owns_mpi_ = true;
    initialized = 1;
    if (provided < MPI_THREAD_MULTIPLE) {
      MPI_Finalize();
      throw_error("this MPI library gives thread level {}, MPI_THREAD_MULTIPLE is needed",
                  provided);
    }
  }
  has_mpi_ = initialized != 0;
  if (has_mpi_) {
    MPI_Comm_rank(MPI_COMM_WORLD, &global_rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &global_size_);
  }
}

MpiRuntime::~MpiRuntime() {
  if (owns_mpi_ && std::uncaught_exceptions() == 0) {
    MPI_Finalize();
  }
}

int MpiRuntime::local_rank() {
  find_local();
  return local_rank_;
}

int MpiRuntime::local_size() {
  find_local();
  return local_size_;
}

void MpiRuntime::find_local() {
  if (local_size_ != 0) {
    return;
  }
  if (!has_mpi_) {
    local_size_ = 1;
    return;
  }
  MPI_Comm host = MPI_COMM_NULL;
  mpi_call(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, global_rank_, MPI_INFO_NULL, &host),
      "MPI_Comm_split_type");
  MPI_Comm_rank(host, &local_rank_);
  MPI_Comm_size(host, &local_size_);
  MPI_Comm_free(&host);
}

std::string MpiRuntime::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

void MpiRuntime::refuse_lonely_slurm_task() const {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  if (global_size_ == 1 && !by_mpirun && tasks != nullptr && std::atol(tasks) > 1) {
    throw_request_error(
        "this Slurm step has {} tasks, but each found itself alone: start with `srun --mpi=pmix` "
        "(or mpirun), or each would work by itself and overwrite the others' files",
        tasks);
  }
}

void MpiRuntime::abort(int code) const {
  if (has_mpi_) {
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  std::_Exit(code);
}

std::unique_ptr<Communicator> make_world(const MpiRuntime& runtime, const MpiOptions& options) {
  if (runtime.global_size() == 1) {
    return std::make_unique<LocalCommunicator>();
  }
  roll_call(options.time_limit_seconds);
  MPI_Comm world = MPI_COMM_NULL;
  mpi_call(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  return std::make_unique<MpiCommunicator>(
      std::make_unique<MpiGroup>(world, options, std::make_shared<Progress>()));
}

}  // namespace lockstep
