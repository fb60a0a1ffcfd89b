#include "parallel/step_exchange.h"

#include <algorithm>
#include <span>

#include "base/aligned_tree.h"
#include "base/error.h"
#include "base/trace.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

constexpr std::size_t kLoss = 0;
constexpr std::size_t kFlags = 1;
constexpr std::size_t kFirstNode = 2;
constexpr std::size_t kPiece = Communicator::kMaxValues;

std::vector<std::vector<NormNode>> nodes_by_rank(const NormTree& tree,
                                                 const std::vector<StepExchange::Share>& shares) {
  std::vector<std::vector<NormNode>> nodes;
  nodes.reserve(shares.size());
  for (const StepExchange::Share& share : shares) {
    nodes.push_back(tree.covering_nodes(*share.table, share.ranges, share.counts_replicated));
  }
  return nodes;
}

std::vector<NormNode> joined(const std::vector<std::vector<NormNode>>& by_rank) {
  std::vector<NormNode> all;
  for (const auto& nodes : by_rank) {
    all.insert(all.end(), nodes.begin(), nodes.end());
  }
  return all;
}

// The parts of `ranges` whose parameters are counted.
std::vector<IndexRange> counted_ranges(const StepExchange::Share& share) {
  std::vector<IndexRange> counted;
  for (const Parameter& parameter : share.table->parameters()) {
    if (parameter.is_copy || (!parameter.is_split() && !share.counts_replicated)) {
      continue;
    }
    const long end_of_parameter = parameter.offset + parameter.stored_elements();
    for (const IndexRange& range : share.ranges) {
      const long begin = std::max(parameter.offset, range.begin);
      const long end = std::min(end_of_parameter, range.end);
      if (begin >= end) {
        continue;
      }
      if (!counted.empty() && counted.back().end == begin) {
        counted.back().end = end;
      } else {
        counted.push_back({begin, end});
      }
    }
  }
  return counted;
}

// Where the parts of `ranges` stand.
std::vector<GradientPiece> parts_of(const std::vector<IndexRange>& ranges,
                                    const std::vector<GradientPiece>& pieces) {
  std::vector<GradientPiece> parts;
  for (const IndexRange& range : ranges) {
    for (const GradientPiece& piece : pieces) {
      const long begin = std::max(range.begin, piece.flat);
      const long end = std::min(range.end, piece.flat + piece.count);
      if (begin < end) {
        parts.push_back({begin, piece.offset + (begin - piece.flat), end - begin});
      }
    }
  }
  return parts;
}

}  // namespace

StepExchange::StepExchange(const ParameterTable& whole,
                           const std::vector<Share>& shares,
                           const std::vector<GradientPiece>& pieces,
                           Communicator& world,
                           Queue& queue)
    : world_(&world),
      queue_(&queue),
      tree_(whole),
      table_(shares[static_cast<std::size_t>(world.rank())].table),
      ranges_(parts_of(counted_ranges(shares[static_cast<std::size_t>(world.rank())]), pieces)),
      local_of_(whole.parameters().size(), -1),
      nodes_(nodes_by_rank(tree_, shares)),
      combination_(tree_, joined(nodes_)) {
  for (std::size_t i = 0; i < table_->parameters().size(); ++i) {
    local_of_[static_cast<std::size_t>(tree_.index_of(table_->parameters()[i].name))] =
        static_cast<int>(i);
  }
  std::size_t num_nodes = 0;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    if (shares[rank].counts_loss) {
      loss_ranks_.push_back(static_cast<int>(rank));
    }
    num_nodes += nodes_[rank].size();
    values_a_rank_ = std::max(values_a_rank_, kFirstNode + nodes_[rank].size());
  }
  chunk_sums_ = queue.allocate_for_host(planned_bytes(*table_));
  mine_.resize(values_a_rank_);
  all_.resize(values_a_rank_ * shares.size());
  losses_.resize(loss_ranks_.size());
  node_values_.resize(num_nodes);
}

void StepExchange::sum_chunks(const float* gradients) {
  const TraceSpan span("norm", "step");
  for (const GradientPiece& part : ranges_) {
    launch(*queue_,
           SquaredSums{.x = gradients + part.offset,
                       .count = part.count,
                       .chunk_sums = chunk_sums_.as<double>() + part.flat / kChunkElements});
  }
  queue_->synchronize();
}

void StepExchange::gather() {
  const TraceSpan span("wait", "norm and loss", TraceTrack::kWaiting);
  const auto ranks = static_cast<std::size_t>(world_->size());
  for (std::size_t begin = 0; begin < values_a_rank_; begin += kPiece) {
    const std::size_t count = std::min(kPiece, values_a_rank_ - begin);
    world_->all_gather(std::span<const double>(mine_).subspan(begin, count),
                       std::span<double>(all_).subspan(begin * ranks, count * ranks));
  }
}

std::size_t StepExchange::planned_bytes(const ParameterTable& table) {
  return static_cast<std::size_t>(table.flat_size() / kChunkElements) * sizeof(double);
}

StepExchange::Result StepExchange::exchange(const float* gradients,
                                            FunctionRef<double()> loss,
                                            double flags) {
  sum_chunks(gradients);
  mine_[kLoss] = loss();
  mine_[kFlags] = flags;
  const auto chunk = [&](int parameter, int block, long index) {
    const Parameter& own = (*table_)[local_of_[static_cast<std::size_t>(parameter)]];
    const long first = own.offset + (block - own.first_block) * own.block_stride;
    return chunk_sums_.as<double>()[first / kChunkElements + index];
  };
  const auto& own_nodes = nodes_[static_cast<std::size_t>(world_->rank())];
  for (std::size_t i = 0; i < own_nodes.size(); ++i) {
    mine_[kFirstNode + i] = tree_.value_of(own_nodes[i], chunk);
  }
  gather();

  const std::size_t ranks = nodes_.size();
  const auto value = [&](std::size_t rank, std::size_t index) {
    const std::size_t begin = index / kPiece * kPiece;
    const std::size_t count = std::min(kPiece, values_a_rank_ - begin);
    return all_[begin * ranks + rank * count + index - begin];
  };
  Result result;
  std::size_t next = 0;
  std::size_t next_loss = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    result.flags = std::max(result.flags, value(rank, kFlags));
    if (next_loss < loss_ranks_.size() && loss_ranks_[next_loss] == static_cast<int>(rank)) {
      losses_[next_loss++] = value(rank, kLoss);
    }
    for (std::size_t i = 0; i < nodes_[rank].size(); ++i) {
      node_values_[next++] = value(rank, kFirstNode + i);
    }
  }
  result.loss = tree_sum_in_place(std::span<double>(losses_));
  result.squared_norm = combination_.combine(node_values_);
  return result;
}

}  // namespace lockstep
