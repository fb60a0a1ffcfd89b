#include "comm/mpi/runtime.h"

#include <cstdlib>

#include <mpi.h>

#include "base/error.h"
#include "support/catch.h"

namespace lockstep {
namespace {

// The unit tests are not started by a launcher; a ctest that is must not confuse them.
void forget_launchers() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_NUM_TASKS"}) {
    unsetenv(name);
  }
}

}  // namespace

TEST_CASE("a program started alone is one rank and never touches MPI") {
  forget_launchers();
  int argc = 0;
  char** argv = nullptr;
  {
    MpiRuntime runtime(argc, argv);

    CHECK(!runtime.has_mpi());
    CHECK(runtime.global_rank() == 0);
    CHECK(runtime.global_size() == 1);
    CHECK(runtime.local_rank() == 0);
    CHECK(runtime.local_size() == 1);
    CHECK(!runtime.host_name().empty());
    CHECK(!MpiRuntime::library_version().empty());
    CHECK(make_world(runtime, {})->size() == 1);
  }
  int initialized = 1;
  int finalized = 1;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  CHECK(initialized == 0);
  CHECK(finalized == 0);
}

TEST_CASE("a lonely task of a Slurm step of several tasks is refused") {
  forget_launchers();
  int argc = 0;
  char** argv = nullptr;
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);

  const MpiRuntime runtime(argc, argv);

  CHECK_THROWS_AS(runtime.refuse_lonely_slurm_task(), RequestError);
  CHECK_THROWS_WITH(runtime.refuse_lonely_slurm_task(),
                    Catch::Matchers::Contains("srun --mpi=pmix"));
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  CHECK_NOTHROW(runtime.refuse_lonely_slurm_task());

  forget_launchers();
}

}  // namespace lockstep
