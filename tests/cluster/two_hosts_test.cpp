// Two ranks on each of two hosts: MPI must see two machines, and sums and messages must cross between them.
#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>

#include "comm/mpi/runtime.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

constexpr int kHosts = 2;
constexpr int kRanksPerHost = 2;

std::vector<std::string> node_names(int size) {
  constexpr std::size_t kLength = MPI_MAX_PROCESSOR_NAME;
  std::array<char, kLength> mine{};
  int length = 0;
  MPI_Get_processor_name(mine.data(), &length);
  std::vector<char> all(static_cast<std::size_t>(size) * kLength);
  MPI_Allgather(mine.data(), kLength, MPI_CHAR, all.data(), kLength, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> names;
  for (std::size_t start = 0; start < all.size(); start += kLength) {
    names.emplace_back(&all[start]);
  }
  return names;
}

// Whether a file is there, or comes within 20 seconds. Makes no call of MPI.
bool comes(const std::string& path) {
  constexpr int kTries = 20'000;
  for (int i = 0; i < kTries && !std::filesystem::exists(path); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::filesystem::exists(path);
}

}  // namespace

TEST_CASE("four ranks are two on each of two hosts") {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  REQUIRE(size == kHosts * kRanksPerHost);

  const std::vector<std::string> names = node_names(size);
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int ranks_here = 0;
  MPI_Comm_size(host, &ranks_here);
  MPI_Comm_free(&host);

  CHECK(std::set<std::string>(names.begin(), names.end()).size() == kHosts);
  for (const std::string& name : names) {
    CHECK(std::count(names.begin(), names.end(), name) == kRanksPerHost);
  }
  CHECK(ranks_here == kRanksPerHost);
}

TEST_CASE("a sum over the ranks of two hosts is the closed form") {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  constexpr int kCount = 100003;  // larger than an eager message, and no multiple of anything
  std::vector<long> send(kCount);
  for (int i = 0; i < kCount; ++i) {
    send[static_cast<std::size_t>(i)] = rank + static_cast<long>(i) * size;
  }

  std::vector<long> sum(kCount);
  MPI_Allreduce(send.data(), sum.data(), kCount, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);

  long wrong = 0;
  for (int i = 0; i < kCount; ++i) {
    const long expected = size * (size - 1) / 2 + static_cast<long>(i) * size * size;
    wrong += sum[static_cast<std::size_t>(i)] == expected ? 0 : 1;
  }
  CHECK(wrong == 0);
}

// As if the sender computed. The receiver answers with a file, since the hosts are namespaces of one machine.
TEST_CASE("a message reaches another host while its sender makes no call of MPI") {
  constexpr std::size_t kBytes = std::size_t{128} << 10U;  // MPI sends half of it before an answer
  constexpr int kWarmUp = 50;  // a connection takes more once it is used
  constexpr int kSender = 0;
  constexpr int kReceiver = kRanksPerHost;  // the first rank of the other host
  int argc = 0;
  char** argv = nullptr;
  MpiRuntime runtime(argc, argv);
  const auto group = make_world(runtime, {});
  const int rank = group->rank();
  REQUIRE(group->host_of()[kSender] != group->host_of()[kReceiver]);
  const test::ScratchFolder folder;
  const std::string arrived = group->all_gather_text(folder / "arrived")[kSender];
  std::vector<std::byte> data(kBytes);
  std::unique_ptr<Operation> message;
  if (rank == kSender) {
    message = group->make_send(data.data(), kBytes, kReceiver, 1);
  } else if (rank == kReceiver) {
    message = group->make_receive(data.data(), kBytes, kSender, 1);
  }
  for (int i = 0; message && i < kWarmUp; ++i) {
    message->start();
    message->wait();
  }

  if (rank == kReceiver) {
    message->start();
  }
  group->barrier();
  if (rank == kSender) {
    message->start();
    CHECK(comes(arrived));
  } else if (rank == kReceiver) {
    message->wait();
    std::ofstream(arrived).put('1');
  }
  if (message) {
    message->wait();
  }
  group->barrier();
}

}  // namespace lockstep
