#include <numeric>

#include <mpi.h>
#include <nccl.h>

#include "emulated_device/self_test/device_memory.h"
#include "emulated_device/self_test/kernels.h"
#include "support/catch.h"

namespace lockstep::self_test {
namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

// A communicator of all ranks, each on a device of its own.
class World {
 public:
  explicit World(bool blocking = true) {
    REQUIRE(cudaSetDevice(world_rank()) == cudaSuccess);
    ncclUniqueId id;
    if (world_rank() == world_size() - 1) {
      ncclGetUniqueId(&id);
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, world_size() - 1, MPI_COMM_WORLD);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    const ncclResult_t status =
        ncclCommInitRankConfig(&comm_, world_size(), id, world_rank(), &config);
    REQUIRE((status == ncclSuccess || (!blocking && status == ncclInProgress)));
    wait();
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~World() {
    ncclCommFinalize(comm_);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      ncclCommGetAsyncError(comm_, &state);
    }
    ncclCommDestroy(comm_);
    cudaStreamDestroy(stream_);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void wait() const {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      REQUIRE(ncclCommGetAsyncError(comm_, &state) == ncclSuccess);
    }
    REQUIRE(state == ncclSuccess);
  }
  [[nodiscard]] ncclComm_t comm() const { return comm_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }

 private:
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// Element i of rank r.
std::vector<float> values_of(int rank, int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>(rank + i * world_size());
  }
  return values;
}

float sum_of(int i) {
  const int size = world_size();
  const int ranks = size * (size - 1) / 2;
  return static_cast<float>(ranks + i * size * size);
}

constexpr int kCount = 37;

TEST_CASE("collectives give what their names say") {
  const World world;
  const int rank = world_rank();
  const int size = world_size();
  const DeviceValues<float> x(values_of(rank, kCount * size));
  const DeviceValues<float> sums(kCount * size);
  const DeviceValues<float> part(kCount);
  const DeviceValues<float> all(kCount * size);
  const DeviceValues<float> root(values_of(rank, kCount));
  cudaDeviceSynchronize();

  const std::size_t total = static_cast<std::size_t>(kCount) * static_cast<std::size_t>(size);
  REQUIRE(ncclAllReduce(
              x.data(), sums.data(), total, ncclFloat, ncclSum, world.comm(), world.stream()) ==
          ncclSuccess);
  REQUIRE(ncclReduceScatter(
              x.data(), part.data(), kCount, ncclFloat, ncclSum, world.comm(), world.stream()) ==
          ncclSuccess);
  REQUIRE(ncclAllGather(part.data(), all.data(), kCount, ncclFloat, world.comm(), world.stream()) ==
          ncclSuccess);
  REQUIRE(
      ncclBroadcast(
          root.data(), root.data(), kCount, ncclFloat, size - 1, world.comm(), world.stream()) ==
      ncclSuccess);
  REQUIRE(cudaStreamSynchronize(world.stream()) == cudaSuccess);

  const std::vector<float> reduced = sums.download();
  for (int i = 0; i < kCount * size; ++i) {
    REQUIRE(reduced[static_cast<std::size_t>(i)] == sum_of(i));
  }
  REQUIRE(all.download() == reduced);
  REQUIRE(root.download() == values_of(size - 1, kCount));
}

TEST_CASE("sends and receives of a group meet, in any order within it") {
  const World world;
  const int rank = world_rank();
  const int size = world_size();
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  const DeviceValues<float> x(values_of(rank, kCount));
  const DeviceValues<float> y(kCount);
  cudaDeviceSynchronize();

  for (int turn = 0; turn < 3; ++turn) {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    REQUIRE(ncclSend(x.data(), kCount, ncclFloat, next, world.comm(), world.stream()) ==
            ncclSuccess);
    REQUIRE(ncclRecv(y.data(), kCount, ncclFloat, previous, world.comm(), world.stream()) ==
            ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    scale(world.stream(), x.data(), 2.0F, kCount);
  }
  REQUIRE(cudaStreamSynchronize(world.stream()) == cudaSuccess);

  std::vector<float> expected = values_of(previous, kCount);
  for (float& value : expected) {
    value *= 4.0F;
  }
  REQUIRE(y.download() == expected);
}

TEST_CASE("a communicator that does not block starts and connects while it is asked") {
  const World world(false);
  const DeviceValues<float> x(values_of(world_rank(), kCount));
  cudaDeviceSynchronize();

  const ncclResult_t status =
      ncclAllReduce(x.data(), x.data(), kCount, ncclFloat, ncclSum, world.comm(), world.stream());
  REQUIRE((status == ncclSuccess || status == ncclInProgress));
  world.wait();
  REQUIRE(cudaStreamSynchronize(world.stream()) == cudaSuccess);

  REQUIRE(x.download()[3] == sum_of(3));
}

TEST_CASE("a rank whose host waits for another lets its device go on") {
  const World world;
  const int rank = world_rank();
  const DeviceValues<float> x(values_of(rank, kCount));
  cudaDeviceSynchronize();
  ncclAllReduce(x.data(), x.data(), kCount, ncclFloat, ncclSum, world.comm(), world.stream());
  // Only rank 0 waits for its device; the others' hosts wait for rank 0.
  if (rank == 0) {
    cudaStreamSynchronize(world.stream());
  }
  MPI_Barrier(MPI_COMM_WORLD);
  cudaStreamSynchronize(world.stream());
  REQUIRE(x.download()[5] == sum_of(5));
}

TEST_CASE("a split gives groups of one colour, ordered by key") {
  const World world;
  const int rank = world_rank();
  ncclComm_t part = nullptr;
  REQUIRE(ncclCommSplit(world.comm(), rank % 2, -rank, &part, nullptr) == ncclSuccess);
  int size = 0;
  int part_rank = -1;
  ncclCommCount(part, &size);
  ncclCommUserRank(part, &part_rank);
  REQUIRE(size == (world_size() + 1 - rank % 2) / 2);
  REQUIRE(part_rank == size - 1 - rank / 2);

  const DeviceValues<float> x(std::vector<float>(kCount, static_cast<float>(rank)));
  cudaDeviceSynchronize();
  ncclAllReduce(x.data(), x.data(), kCount, ncclFloat, ncclMax, part, world.stream());
  cudaStreamSynchronize(world.stream());
  REQUIRE(x.download()[0] == static_cast<float>(rank % 2 + 2 * (size - 1)));
  ncclCommDestroy(part);
}

TEST_CASE("two ranks on one device are refused") {
  if (world_size() > 1) {
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    ncclUniqueId id;
    if (world_rank() == 0) {
      ncclGetUniqueId(&id);
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    ncclComm_t comm = nullptr;
    REQUIRE(ncclCommInitRank(&comm, world_size(), id, world_rank()) == ncclInvalidUsage);
    REQUIRE(std::string(ncclGetLastError(comm)).find("Duplicate GPU") == 0);
    ncclCommAbort(comm);
  }
}

TEST_CASE("a graph with a collective is run several times") {
  const World world;
  const DeviceValues<float> x(std::vector<float>(kCount, 1.0F));
  cudaDeviceSynchronize();
  REQUIRE(cudaStreamBeginCapture(world.stream(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  ncclAllReduce(x.data(), x.data(), kCount, ncclFloat, ncclSum, world.comm(), world.stream());
  scale(world.stream(), x.data(), 0.5F, kCount);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(world.stream(), &graph) == cudaSuccess);
  cudaGraphExec_t run = nullptr;
  cudaGraphInstantiate(&run, graph, 0);
  cudaGraphLaunch(run, world.stream());
  cudaGraphLaunch(run, world.stream());
  cudaStreamSynchronize(world.stream());
  const auto size = static_cast<float>(world_size());
  REQUIRE(x.download()[0] == size * size / 4);
  cudaGraphExecDestroy(run);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace lockstep::self_test
