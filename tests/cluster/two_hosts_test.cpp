// Two ranks on each of two hosts: MPI must see two machines, and a sum must cross between them.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include <mpi.h>

#include "support/catch.h"

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

}  // namespace lockstep
