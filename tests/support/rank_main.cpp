// The main function of the tests that run on several ranks: a failure on one rank ends the whole job.
#define CATCH_CONFIG_RUNNER
#include <mpi.h>

#include "support/catch.h"

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  Catch::Session session;
  int result = session.applyCommandLine(argc, argv);
  if (result == 0) {
    result = session.run();
  }
  if (result != 0) {
    MPI_Abort(MPI_COMM_WORLD, result);  // the other ranks may be waiting for this one
  }
  MPI_Finalize();
  return 0;
}
