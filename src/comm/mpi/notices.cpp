#include "comm/mpi/notices.h"

#include "comm/mpi/mpi_call.h"

namespace lockstep {
namespace {

constexpr int kWords = sizeof(Notices::Notice) / sizeof(std::int64_t);

}  // namespace

Notices::Notices(MPI_Comm comm, const HostMap& hosts, int rank) : comm_(comm) {
  for (int other = 0; other < hosts.num_ranks(); ++other) {
    if (hosts.host_of(other) != hosts.host_of(rank)) {
      ranks_.push_back(other);
    }
  }
  incoming_.resize(ranks_.size());
  outgoing_.resize(ranks_.size());
  last_.resize(ranks_.size());
  receives_.resize(ranks_.size(), MPI_REQUEST_NULL);
  sends_.resize(ranks_.size(), MPI_REQUEST_NULL);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    mpi_call(MPI_Irecv(&incoming_[i], kWords, MPI_INT64_T, ranks_[i], kTag, comm_, &receives_[i]),
             "MPI_Irecv");
  }
}

Notices::~Notices() {
  for (auto& request : receives_) {
    if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }
  for (auto& request : sends_) {
    if (request != MPI_REQUEST_NULL) {
      MPI_Request_free(&request);
    }
  }
}

void Notices::ask(Notice mine) {
  mine.is_question = 1;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    send(i, mine);
  }
}

void Notices::progress(Notice mine) {
  mine.is_question = 0;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    int arrived = 0;
    mpi_call(MPI_Test(&receives_[i], &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0) {
      continue;
    }
    last_[i] = incoming_[i];
    mpi_call(MPI_Irecv(&incoming_[i], kWords, MPI_INT64_T, ranks_[i], kTag, comm_, &receives_[i]),
             "MPI_Irecv");
    if (last_[i].is_question != 0) {
      send(i, mine);
    }
  }
}

void Notices::send(std::size_t index, Notice notice) {
  int left = 0;
  mpi_call(MPI_Test(&sends_[index], &left, MPI_STATUS_IGNORE), "MPI_Test");
  if (left == 0) {
    return;
  }
  outgoing_[index] = notice;
  mpi_call(
      MPI_Isend(&outgoing_[index], kWords, MPI_INT64_T, ranks_[index], kTag, comm_, &sends_[index]),
      "MPI_Isend");
}

}  // namespace lockstep
