#include "parallel/step_exchange.h"

#include <algorithm>

#include "base/error.h"
#include "base/trace.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

constexpr std::size_t kLoss = 0;
constexpr std::size_t kFlags = 1;
constexpr std::size_t kFirstNode = 2;

}  // namespace

StepExchange::StepExchange(long count, Communicator& group, Queue& queue)
    : group_(&group), queue_(&queue), num_chunks_(count / kChunkElements) {
  LOCKSTEP_CHECK(count % kChunkElements == 0);
  for (int rank = 0; rank < group.size(); ++rank) {
    const IndexRange range = part_of(num_chunks_, group.size(), rank);
    nodes_.push_back(covering_nodes(range.begin, range.end, num_chunks_));
    values_a_rank_ = std::max(values_a_rank_, kFirstNode + nodes_.back().size());
    for (const TreeNode node : nodes_.back()) {
      ordered_nodes_.push_back(node);
    }
  }
  own_ = part_of(num_chunks_, group.size(), group.rank());
  chunk_sums_.resize(static_cast<std::size_t>(own_.size()));
  mine_.resize(values_a_rank_);
  all_.resize(values_a_rank_ * static_cast<std::size_t>(group.size()));
  losses_.resize(static_cast<std::size_t>(group.size()));
  node_values_.resize(ordered_nodes_.size());
}

double StepExchange::subtree(TreeNode node) const {
  if (node.level == 0) {
    return chunk_sums_[static_cast<std::size_t>(node.index - own_.begin)];
  }
  const double left = subtree(node.left());
  return node.right().first_leaf() < num_chunks_ ? left + subtree(node.right()) : left;
}

double StepExchange::combine(TreeNode node, std::size_t& cursor) const {
  if (ordered_nodes_[cursor] == node) {
    return node_values_[cursor++];
  }
  const double left = combine(node.left(), cursor);
  return node.right().first_leaf() < num_chunks_ ? left + combine(node.right(), cursor) : left;
}

StepExchange::Result StepExchange::exchange(const float* buffer, double loss, double flags) {
  {
    const TraceSpan span("norm", "step");
    launch(*queue_,
           SquaredSums{.x = buffer + own_.begin * kChunkElements,
                       .count = own_.size() * kChunkElements,
                       .chunk_sums = chunk_sums_.data()});
    queue_->synchronize();
  }
  mine_[kLoss] = loss;
  mine_[kFlags] = flags;
  const auto& own_nodes = nodes_[static_cast<std::size_t>(group_->rank())];
  for (std::size_t i = 0; i < own_nodes.size(); ++i) {
    mine_[kFirstNode + i] = subtree(own_nodes[i]);
  }
  {
    const TraceSpan span("wait", "norm and loss", TraceTrack::kWaiting);
    group_->all_gather(mine_, all_);
  }

  Result result;
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    const double* values = all_.data() + rank * values_a_rank_;
    losses_[rank] = values[kLoss];
    result.flags = std::max(result.flags, values[kFlags]);
    for (std::size_t i = 0; i < nodes_[rank].size(); ++i) {
      node_values_[next++] = values[kFirstNode + i];
    }
  }
  result.loss = tree_sum_in_place(std::span<double>(losses_));
  std::size_t cursor = 0;
  result.squared_norm = combine(tree_root(num_chunks_), cursor);
  return result;
}

}  // namespace lockstep
