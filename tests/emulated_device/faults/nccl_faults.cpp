#include <mpi.h>
#include <nccl.h>

#include "emulated_device/faults/fault.h"
#include "emulated_device/faults/kernels.h"

namespace lockstep::faults {
namespace {

constexpr int kCount = 200;

std::vector<float> ones() {
  return std::vector<float>(kCount, 1.0F);
}

/// Two ranks, each on a device of its own.
class Pair {
 public:
  Pair() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    check_cuda(cudaSetDevice(rank_), "choosing a device");
    ncclUniqueId id;
    if (rank_ == 0) {
      ncclGetUniqueId(&id);
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    expect(ncclCommInitRank(&comm_, 2, id, rank_) == ncclSuccess);
  }
  ~Pair() { ncclCommDestroy(comm_); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] ncclComm_t comm() const { return comm_; }

 private:
  int rank_ = 0;
  ncclComm_t comm_ = nullptr;
};

void sum(const Pair& pair, const float* from, float* to, int count, const Stream& stream) {
  expect(ncclAllReduce(from,
                       to,
                       static_cast<std::size_t>(count),
                       ncclFloat,
                       ncclSum,
                       pair.comm(),
                       stream.get()) == ncclSuccess);
}

void counts(bool wrong) {
  const Pair pair;
  const Values<float> x(ones());
  const Stream stream;
  sum(pair, x.data(), x.data(), wrong && pair.rank() == 1 ? kCount - 1 : kCount, stream);
  expect(x.download()[0] == 2.0F);
}

void send_counts(bool wrong) {
  const Pair pair;
  const Values<float> x(ones());
  const Stream stream;
  if (pair.rank() == 0) {
    ncclSend(x.data(), kCount, ncclFloat, 1, pair.comm(), stream.get());
  } else {
    ncclRecv(x.data(), wrong ? kCount / 2 : kCount, ncclFloat, 0, pair.comm(), stream.get());
  }
  expect(x.download()[0] == 1.0F);
}

void order_of_calls(bool wrong) {
  const Pair pair;
  const Values<float> x(ones());
  const Values<float> y(2 * kCount);
  const Stream stream;
  const bool turned = wrong && pair.rank() == 1;
  if (!turned) {
    sum(pair, x.data(), x.data(), kCount, stream);
  }
  ncclAllGather(x.data(), y.data(), kCount, ncclFloat, pair.comm(), stream.get());
  if (turned) {
    sum(pair, x.data(), x.data(), kCount, stream);
  }
  expect(y.download()[0] == 2.0F);
}

void group_end(bool wrong) {
  const Pair pair;
  const Values<float> x(ones());
  const Stream stream;
  ncclGroupStart();
  sum(pair, x.data(), x.data(), kCount, stream);
  if (!wrong) {
    ncclGroupEnd();
  }
  check_cuda(cudaStreamSynchronize(stream.get()), "waiting");
  expect(x.download()[0] == 2.0F);
}

void result_early(bool wrong) {
  const Pair pair;
  const Values<float> x(ones());
  const Values<float> y(kCount);
  const Stream communication;
  const Stream compute;
  sum(pair, x.data(), y.data(), kCount, communication);
  if (!wrong) {
    order(communication, compute);
  }
  twice(compute.get(), y.data(), kCount);
  expect(y.download()[0] == 4.0F);
}

void overwritten(bool wrong) {
  const Pair pair;
  const Values<float> x(ones());
  const Values<float> y(kCount);
  const Stream communication;
  const Stream compute;
  sum(pair, x.data(), y.data(), kCount, communication);
  if (!wrong) {
    order(communication, compute);
  }
  twice(compute.get(), x.data(), kCount);
  expect(y.download()[0] == 2.0F);
}

void bounds(bool wrong) {
  const Pair pair;
  const Values<float> x(ones());
  const Values<float> y(2 * kCount - (wrong ? 1 : 0));
  const Stream stream;
  ncclAllGather(x.data(), y.data(), kCount, ncclFloat, pair.comm(), stream.get());
  expect(y.download()[0] == 1.0F);
}

void same_device(bool wrong) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  check_cuda(cudaSetDevice(wrong ? 0 : rank), "choosing a device");
  ncclUniqueId id;
  if (rank == 0) {
    ncclGetUniqueId(&id);
  }
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm = nullptr;
  const ncclResult_t status = ncclCommInitRank(&comm, 2, id, rank);
  if (status != ncclSuccess) {
    throw std::runtime_error(ncclGetLastError(comm));
  }
  ncclCommDestroy(comm);
}

constexpr Fault kFaults[] = {
    {"nccl-counts",
     "ranks sum different numbers of values",
     "do not agree about a call",
     2,
     &counts},
    {"nccl-send-counts",
     "a rank receives fewer values than are sent",
     "do not agree about a call",
     2,
     &send_counts},
    {"nccl-order",
     "ranks call collectives in different orders",
     "do not agree about a call",
     2,
     &order_of_calls},
    {"nccl-group-end",
     "ncclGroupStart without ncclGroupEnd",
     "between ncclGroupStart and ncclGroupEnd",
     2,
     &group_end},
    {"nccl-result-early",
     "a sum is used before the stream of communication was waited for",
     "race between streams",
     2,
     &result_early},
    {"nccl-overwritten",
     "what a collective still reads is overwritten",
     "race between streams",
     2,
     &overwritten},
    {"nccl-bounds",
     "a gather into a buffer that is too small",
     "outside any allocation",
     2,
     &bounds},
    {"nccl-same-device", "two ranks on one device", "Duplicate GPU", 2, &same_device},
};

}  // namespace

std::span<const Fault> nccl_faults() {
  return kFaults;
}

}  // namespace lockstep::faults
