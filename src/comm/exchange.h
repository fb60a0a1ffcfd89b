// Who does what when ranks of one or several hosts reduce or gather a buffer. Pure arithmetic,
// shared by the communicators that do it and the one that only counts.
//
// The buffer is cut into one slice a rank, its owner. A slice is handled on every host by one rank,
// the handler: on the owner's host that is the owner. For a reduction a handler adds up the
// subtrees that lie wholly on its host (the covering nodes) and sends them to the owner, who
// completes the tree. For a gather the owner sends the slice to the handlers, and every handler
// copies it to the ranks of its host.
#pragma once

#include <vector>

#include "base/aligned_tree.h"
#include "base/integers.h"

namespace lockstep {

/// Where the ranks of a group are.
class HostMap {
 public:
  /// host_of[r] is any number that is the same for ranks of one host. Cost: O(ranks * hosts).
  explicit HostMap(const std::vector<long>& host_of);

  [[nodiscard]] int num_ranks() const { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] int num_hosts() const { return static_cast<int>(ranks_on_.size()); }
  /// Hosts are numbered in order of first appearance.
  [[nodiscard]] const std::vector<int>& host_of() const { return host_of_; }
  [[nodiscard]] int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  /// The ranks of a host, ascending.
  [[nodiscard]] const std::vector<int>& ranks_on(int host) const {
    return ranks_on_[static_cast<std::size_t>(host)];
  }
  /// The maximal subtrees of the aligned tree over the ranks that lie wholly on a host, in order.
  [[nodiscard]] const std::vector<TreeNode>& nodes_on(int host) const {
    return nodes_on_[static_cast<std::size_t>(host)];
  }
  /// The rank of `host` that handles the slice of `owner`; spread evenly over the host's ranks.
  [[nodiscard]] int handler(int host, int owner) const {
    return handlers_[static_cast<std::size_t>(host)][static_cast<std::size_t>(owner)];
  }

 private:
  std::vector<int> host_of_;
  std::vector<std::vector<int>> ranks_on_;
  std::vector<std::vector<TreeNode>> nodes_on_;
  std::vector<std::vector<int>> handlers_;
};

/// kSharedGather: a gather into memory of which a host has one copy.
enum class Exchange { kAllReduce, kReduceScatter, kAllGather, kSharedGather };

inline bool is_gather(Exchange exchange) {
  return exchange == Exchange::kAllGather || exchange == Exchange::kSharedGather;
}

/// The slice of `owner`: its part_of the chunks of `chunk` items that cover `count` items, the last
/// of which may be shorter.
IndexRange slice_of(long count, long chunk, int num_ranks, int owner);

/// Items (elements, or bytes) that `rank` sends to other ranks in one exchange: what others read of
/// its buffer, what it writes into theirs, and what it puts into messages. Cost: O(ranks).
double items_sent_by(const HostMap& hosts, Exchange exchange, int rank, long count, long chunk);

/// Items for which `rank` needs buffers beside the one that is exchanged: what arrives from other
/// hosts for its own slice, and the sums it sends to them. None on a single host. Cost: O(ranks).
long message_items(const HostMap& hosts, Exchange exchange, int rank, long count, long chunk);

/// Elements in a chunk of an all-reduce: fine enough to share small buffers among owners, coarse
/// enough that no cache line has two owners. The sums do not depend on it.
inline constexpr long kAllReduceChunk = 512;

}  // namespace lockstep
