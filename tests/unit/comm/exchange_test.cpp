#include "comm/exchange.h"

#include <vector>

#include "support/catch.h"

namespace lockstep {
namespace {

const std::vector<std::vector<long>> kPlacements{
    {0}, {0, 0}, {0, 1}, {7, 7, 7, 3}, {5, 2, 5, 2}, {0, 0, 1, 1, 1}, {0, 1, 2, 0, 0, 1, 1, 1}};

}  // namespace

TEST_CASE("hosts are numbered in order of first appearance") {
  const HostMap hosts({9, 4, 9, 1});

  CHECK(hosts.host_of() == std::vector<int>{0, 1, 0, 2});
  CHECK(hosts.num_hosts() == 3);
  CHECK(hosts.ranks_on(0) == std::vector<int>{0, 2});
}

TEST_CASE("slices cover the buffer once, in the order of their owners") {
  for (const long count : {0L, 1L, 5L, 512L, 513L, 10'000L}) {
    for (const int ranks : {1, 2, 3, 7}) {
      long next = 0;
      for (int owner = 0; owner < ranks; ++owner) {
        const IndexRange slice = slice_of(count, 512, ranks, owner);
        CHECK(slice.begin == next);
        CHECK((slice.begin % 512 == 0 || slice.size() == 0));
        next = slice.end;
      }
      CHECK(next == count);
    }
  }
}

TEST_CASE("the nodes of all hosts cover every rank once") {
  for (const auto& placement : kPlacements) {
    const HostMap hosts(placement);
    std::vector<int> covered(placement.size(), -1);
    for (int host = 0; host < hosts.num_hosts(); ++host) {
      for (const TreeNode node : hosts.nodes_on(host)) {
        for (long leaf = node.first_leaf(); leaf < node.end_leaf(hosts.num_ranks()); ++leaf) {
          CHECK(covered[static_cast<std::size_t>(leaf)] == -1);
          covered[static_cast<std::size_t>(leaf)] = host;
        }
      }
    }
    CHECK(covered == hosts.host_of());
  }
}

TEST_CASE("hosts add up only subtrees that lie wholly on them") {
  const HostMap pairs({0, 0, 1, 1});
  const HostMap interleaved({0, 1, 0, 1});

  CHECK(pairs.nodes_on(1) == std::vector<TreeNode>{{1, 1}});
  CHECK(interleaved.nodes_on(1) == std::vector<TreeNode>{{0, 1}, {0, 3}});
}

TEST_CASE("slices of other hosts are shared evenly among a host's ranks") {
  for (const auto& placement : kPlacements) {
    const HostMap hosts(placement);
    for (int host = 0; host < hosts.num_hosts(); ++host) {
      const auto& local = hosts.ranks_on(host);
      const auto foreign = placement.size() - local.size();
      for (const int rank : local) {
        std::size_t handled = 0;
        for (int owner = 0; owner < hosts.num_ranks(); ++owner) {
          handled += hosts.handler(host, owner) == rank ? 1 : 0;
        }
        CHECK(handled >= 1 + foreign / local.size());
        CHECK(handled <= 1 + (foreign + local.size() - 1) / local.size());
      }
    }
  }
}

TEST_CASE("on one host, and on hosts of one rank, a rank sends the bytes of a ring") {
  const long chunk = 512;
  for (const int ranks : {1, 2, 3, 4}) {
    const long count = ranks * 3 * chunk;  // equal slices: 2 (P-1)/P of the buffer
    const double part = 3.0 * chunk;
    std::vector<long> spread;
    for (int rank = 0; rank < ranks; ++rank) {
      spread.push_back(rank);
    }
    for (const HostMap& hosts : {HostMap(std::vector<long>(spread.size(), 0)), HostMap(spread)}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const double once = part * (ranks - 1);
        CHECK(items_sent_by(hosts, Exchange::kAllReduce, rank, count, chunk) == 2 * once);
        CHECK(items_sent_by(hosts, Exchange::kReduceScatter, rank, count, chunk) == once);
        CHECK(items_sent_by(hosts, Exchange::kAllGather, rank, count, chunk) == once);
      }
    }
  }
}

TEST_CASE("two hosts of two ranks exchange one added-up node a slice") {
  const HostMap hosts({0, 0, 1, 1});
  const long chunk = 512;
  const double part = chunk;

  // Reduce: the peer reads two of this rank's slices (its own and
  // the one it handles), and one node goes to the other host. Gather: the own and the handled slice
  // go to the peer, the own one to the other host.
  CHECK(items_sent_by(hosts, Exchange::kReduceScatter, 1, 4 * chunk, chunk) == 3 * part);
  CHECK(items_sent_by(hosts, Exchange::kAllGather, 1, 4 * chunk, chunk) == 3 * part);
}

}  // namespace lockstep
