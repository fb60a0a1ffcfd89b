#include "comm/mpi/roll_call.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "base/error.h"
#include "base/function_ref.h"
#include "comm/mpi/mpi_call.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHereTag = 32001;
constexpr int kAnswerTag = 32002;
constexpr auto kSleep = std::chrono::microseconds(100);
// The others give rank 0 this much longer: its answer names who is missing.
constexpr double kPatience = 1.5;

bool wait_until(double limit, FunctionRef<bool()> done) {
  const auto start = Clock::now();
  while (!done()) {
    if (limit > 0 && std::chrono::duration<double>(Clock::now() - start).count() > limit) {
      return false;
    }
    std::this_thread::sleep_for(kSleep);
  }
  return true;
}

bool test(MPI_Request& request) {
  int complete = 0;
  mpi_call(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
  return complete != 0;
}

[[noreturn]] void fail(double limit, const std::string& missing) {
  throw_error("start-up: waited {:.1f} s for other ranks, the limit; missing: {}", limit, missing);
}

void call_the_roll(int size, double limit) {
  const auto count = static_cast<std::size_t>(size);
  std::vector<int> here(count, 0);
  std::vector<MPI_Request> requests(count, MPI_REQUEST_NULL);
  for (int rank = 1; rank < size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    mpi_call(MPI_Irecv(&here[i], 1, MPI_INT, rank, kHereTag, MPI_COMM_WORLD, &requests[i]),
             "MPI_Irecv");
  }
  wait_until(limit, [&] { return std::all_of(requests.begin(), requests.end(), test); });
  std::string missing;
  for (int rank = 1; rank < size; ++rank) {
    auto& request = requests[static_cast<std::size_t>(rank)];
    if (request != MPI_REQUEST_NULL) {
      missing += fmt::format("{}rank {}", missing.empty() ? "" : ", ", rank);
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
  for (int rank = 1; rank < size; ++rank) {
    mpi_call(MPI_Isend(missing.data(),
                       static_cast<int>(missing.size()),
                       MPI_CHAR,
                       rank,
                       kAnswerTag,
                       MPI_COMM_WORLD,
                       &requests[static_cast<std::size_t>(rank)]),
             "MPI_Isend");
  }
  if (!missing.empty()) {
    // Those that are here take the answer in at once; nobody waits for the others.
    wait_until(0.1 * limit, [&] { return std::all_of(requests.begin(), requests.end(), test); });
    fail(limit, missing);
  }
  mpi_call(MPI_Waitall(size, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
}

void answer_the_roll(double limit) {
  int here = 1;
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_call(MPI_Isend(&here, 1, MPI_INT, 0, kHereTag, MPI_COMM_WORLD, &request), "MPI_Isend");
  MPI_Status status;
  const bool answered = wait_until(limit * kPatience, [&] {
    int arrived = 0;
    mpi_call(MPI_Iprobe(0, kAnswerTag, MPI_COMM_WORLD, &arrived, &status), "MPI_Iprobe");
    return arrived != 0;
  });
  if (!answered) {
    fail(limit * kPatience, "rank 0");
  }
  int length = 0;
  mpi_call(MPI_Get_count(&status, MPI_CHAR, &length), "MPI_Get_count");
  std::string missing(static_cast<std::size_t>(length), ' ');
  mpi_call(
      MPI_Recv(missing.data(), length, MPI_CHAR, 0, kAnswerTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
      "MPI_Recv");
  mpi_call(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  if (!missing.empty()) {
    fail(limit, missing);
  }
}

}  // namespace

void roll_call(double time_limit_seconds) {
  int rank = 0;
  int size = 1;
  mpi_call(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  mpi_call(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (rank == 0) {
    call_the_roll(size, time_limit_seconds);
  } else {
    answer_the_roll(time_limit_seconds);
  }
}

}  // namespace lockstep
