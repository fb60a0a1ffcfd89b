// Eight ranks as a mesh, data x pipeline x tensor, split in three levels.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "comm_support.h"
#include "support/catch.h"

namespace lockstep {
namespace {

/// Rank (data * 2 + stage) * 2 + tensor of the world.
struct Mesh {
  enum Group { kWorld, kReplica, kData, kPipeline, kTensor, kAlone, kNumGroups };

  explicit Mesh(const test::Placement& placement) {
    groups[kWorld] = test::world(placement);
    REQUIRE(of(kWorld).size() == 8);
    groups[kReplica] = of(kWorld).split(std::array{0, 0, 0, 0, 1, 1, 1, 1});
    groups[kData] = of(kWorld).split(std::array{0, 1, 2, 3, 0, 1, 2, 3});
    groups[kPipeline] = of(kReplica).split(std::array{0, 1, 0, 1});
    groups[kTensor] = of(kReplica).split(std::array{0, 0, 1, 1});
    groups[kAlone] = of(kTensor).split(std::array{0, 1});
  }

  [[nodiscard]] Communicator& of(Group group) { return *groups.at(group); }

  std::array<std::unique_ptr<Communicator>, kNumGroups> groups;
};

/// The ranks of the world that are in a rank's group, in order.
std::vector<int> members(Mesh::Group group, int rank) {
  const int replica = rank / 4 * 4;
  switch (group) {
    case Mesh::kWorld:
      return {0, 1, 2, 3, 4, 5, 6, 7};
    case Mesh::kReplica:
      return {replica, replica + 1, replica + 2, replica + 3};
    case Mesh::kData:
      return {rank % 4, rank % 4 + 4};
    case Mesh::kPipeline:
      return {replica + rank % 2, replica + rank % 2 + 2};
    case Mesh::kTensor:
      return {rank / 2 * 2, rank / 2 * 2 + 1};
    default:
      return {rank};
  }
}

/// A sum over one of the groups, whose terms are those of the world's ranks.
class Sum {
 public:
  Sum(Communicator& group, Mesh::Group kind, int world_rank)
      : rank_(world_rank),
        members_(members(kind, world_rank)),
        memory_(group.allocate(kCount * sizeof(float))),
        operation_(group.make_all_reduce(memory_.as<float>(), kCount, Reduction::kOrdered)) {}

  void start(int round) {
    for (long i = 0; i < kCount; ++i) {
      memory_.as<float>()[i] = test::element(rank_, i, round);
    }
    operation_->start();
  }
  long wrong_after_wait(int round) {
    operation_->wait();
    long wrong = 0;
    for (long i = 0; i < kCount; i += 101) {
      std::vector<float> terms;
      for (const int member : members_) {
        terms.push_back(test::element(member, i, round));
      }
      wrong += memory_.as<float>()[i] == tree_sum(terms) ? 0 : 1;
    }
    return wrong;
  }

 private:
  static constexpr long kCount = 20'000;
  int rank_;
  std::vector<int> members_;
  Memory memory_;
  std::unique_ptr<Operation> operation_;
};

}  // namespace

TEST_CASE("the groups of a mesh have the ranks of their rows, in order") {
  Mesh mesh({"one host", {}});
  const int rank = mesh.of(Mesh::kWorld).rank();

  for (int i = 0; i < Mesh::kNumGroups; ++i) {
    const auto kind = static_cast<Mesh::Group>(i);
    CAPTURE(i);
    Communicator& group = mesh.of(kind);
    const std::vector<int> expected = members(kind, rank);
    REQUIRE(group.size() == static_cast<int>(expected.size()));
    const std::array<double, 1> mine{static_cast<double>(rank)};
    std::vector<double> all(expected.size());
    group.all_gather(mine, all);
    CHECK(std::vector<int>(all.begin(), all.end()) == expected);
    CHECK(expected[static_cast<std::size_t>(group.rank())] == rank);
  }
}

TEST_CASE("operations of all groups of a mesh are in flight at once, waited for in any order") {
  for (const auto& placement : test::placements()) {
    CAPTURE(placement.name);
    Mesh mesh(placement);
    const int rank = mesh.of(Mesh::kWorld).rank();
    std::vector<Sum> sums;
    for (int i = 0; i < Mesh::kNumGroups; ++i) {
      const auto kind = static_cast<Mesh::Group>(i);
      sums.emplace_back(mesh.of(kind), kind, rank);
    }
    Communicator& pipeline = mesh.of(Mesh::kPipeline);
    const int peer = 1 - pipeline.rank();
    std::vector<float> sent(30'000);
    std::vector<float> received(sent.size());
    const std::size_t bytes = sent.size() * sizeof(float);
    const auto send = pipeline.make_send(sent.data(), bytes, peer, 3);
    const auto receive = pipeline.make_receive(received.data(), bytes, peer, 3);
    long wrong = 0;

    for (int round = 0; round < 10; ++round) {
      sent.back() = test::element(rank, 0, round);
      receive->start();
      for (Sum& sum : sums) {
        sum.start(round);
        mesh.of(Mesh::kAlone).poll();
      }
      send->start();
      // Every rank waits for another group first.
      for (std::size_t i = 0; i < sums.size(); ++i) {
        wrong += sums[(i + static_cast<std::size_t>(rank)) % sums.size()].wrong_after_wait(round);
      }
      send->wait();
      receive->wait();
      wrong += received.back() == test::element(rank ^ 2, 0, round) ? 0 : 1;
    }

    CHECK(wrong == 0);
  }
}

TEST_CASE("the groups of a mesh are destroyed in any order and the others still work") {
  std::array<int, Mesh::kNumGroups> order{};
  std::iota(order.begin(), order.end(), 0);
  for (const auto& placement : test::placements()) {
    // Parents first, children first, and mixed.
    for (const int turn : {0, 1, 2}) {
      CAPTURE(placement.name, turn);
      Mesh mesh(placement);
      const int rank = mesh.of(Mesh::kWorld).rank();
      std::array<int, Mesh::kNumGroups> destroyed = order;
      if (turn == 1) {
        std::reverse(destroyed.begin(), destroyed.end());
      } else if (turn == 2) {
        std::rotate(destroyed.begin(), destroyed.begin() + 3, destroyed.end());
      }
      long wrong = 0;
      for (const int victim : destroyed) {
        mesh.groups.at(static_cast<std::size_t>(victim)).reset();
        for (int i = 0; i < Mesh::kNumGroups; ++i) {
          const auto kind = static_cast<Mesh::Group>(i);
          if (mesh.groups.at(kind) != nullptr) {
            Sum sum(mesh.of(kind), kind, rank);
            sum.start(victim);
            wrong += sum.wrong_after_wait(victim);
          }
        }
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace lockstep
