#include "comm/exchange.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

std::vector<TreeNode> nodes_of_runs(const std::vector<int>& ranks, int num_ranks) {
  std::vector<TreeNode> nodes;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    const auto run = covering_nodes(ranks[begin], ranks[end - 1] + 1, num_ranks);
    nodes.insert(nodes.end(), run.begin(), run.end());
    begin = end;
  }
  return nodes;
}

}  // namespace

HostMap::HostMap(const std::vector<long>& host_of) {
  std::vector<long> seen;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto found = std::find(seen.begin(), seen.end(), host_of[rank]);
    const auto host = std::distance(seen.begin(), found);
    if (found == seen.end()) {
      seen.push_back(host_of[rank]);
      ranks_on_.emplace_back();
    }
    host_of_.push_back(static_cast<int>(host));
    ranks_on_[static_cast<std::size_t>(host)].push_back(static_cast<int>(rank));
  }
  for (int host = 0; host < num_hosts(); ++host) {
    nodes_on_.push_back(nodes_of_runs(ranks_on(host), num_ranks()));
    std::vector<int> handlers;
    std::size_t foreign = 0;
    for (int owner = 0; owner < num_ranks(); ++owner) {
      const bool own = host_of_[static_cast<std::size_t>(owner)] == host;
      handlers.push_back(own ? owner : ranks_on(host)[foreign++ % ranks_on(host).size()]);
    }
    handlers_.push_back(std::move(handlers));
  }
}

IndexRange slice_of(long count, long chunk, int num_ranks, int owner) {
  const IndexRange chunks = part_of(ceil_div(count, chunk), num_ranks, owner);
  return {std::min(count, chunks.begin * chunk), std::min(count, chunks.end * chunk)};
}

double items_sent_by(const HostMap& hosts, Exchange exchange, int rank, long count, long chunk) {
  const int host = hosts.host_of(rank);
  const auto on_host = static_cast<double>(hosts.ranks_on(host).size());
  if (exchange == Exchange::kSharedGather) {
    const auto own = static_cast<double>(slice_of(count, chunk, hosts.num_ranks(), rank).size());
    return own * ((on_host > 1 ? 1 : 0) + hosts.num_hosts() - 1);
  }
  double items = 0;
  for (int owner = 0; owner < hosts.num_ranks(); ++owner) {
    const auto slice = static_cast<double>(slice_of(count, chunk, hosts.num_ranks(), owner).size());
    const bool handles = hosts.handler(host, owner) == rank;
    if (exchange != Exchange::kAllGather) {
      if (!handles) {
        items += slice;  // the handler reads it from this rank's buffer
      } else if (owner != rank) {
        items += slice * static_cast<double>(hosts.nodes_on(host).size());
      }
    }
    if (exchange != Exchange::kReduceScatter && handles) {
      items += slice * (on_host - 1);
      items += owner == rank ? slice * (hosts.num_hosts() - 1) : 0.0;
    }
  }
  return items;
}

long message_items(const HostMap& hosts, Exchange exchange, int rank, long count, long chunk) {
  if (is_gather(exchange)) {
    return 0;
  }
  const int host = hosts.host_of(rank);
  const auto& own_nodes = hosts.nodes_on(host);
  const long sums = std::count_if(own_nodes.begin(), own_nodes.end(), [&](TreeNode node) {
    return node.end_leaf(hosts.num_ranks()) - node.first_leaf() > 1;  // one rank needs no sum
  });
  long items = 0;
  for (int owner = 0; owner < hosts.num_ranks(); ++owner) {
    if (hosts.host_of(owner) != host && hosts.handler(host, owner) == rank) {
      items += sums * slice_of(count, chunk, hosts.num_ranks(), owner).size();
    }
  }
  long arriving = 0;
  for (int other = 0; other < hosts.num_hosts(); ++other) {
    arriving += other == host ? 0 : static_cast<long>(hosts.nodes_on(other).size());
  }
  return items + arriving * slice_of(count, chunk, hosts.num_ranks(), rank).size();
}

}  // namespace lockstep
