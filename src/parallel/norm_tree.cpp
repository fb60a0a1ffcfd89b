#include "parallel/norm_tree.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

using Tree = NormNode::Tree;

// Adds `next` to ranges of neighbouring numbers.
void append_to(std::vector<IndexRange>& ranges, long next) {
  if (!ranges.empty() && ranges.back().end == next) {
    ranges.back().end = next + 1;
  } else {
    ranges.push_back({next, next + 1});
  }
}

// The nodes that cover some leaves of the tree that `kind` is a node of.
void append(NormNode kind, const IndexRange& range, long leaves, std::vector<NormNode>& nodes) {
  for (const TreeNode node : covering_nodes(range.begin, range.end, leaves)) {
    kind.node = node;
    nodes.push_back(kind);
  }
}

}  // namespace

NormTree::NormTree(const ParameterTable& whole) {
  LOCKSTEP_CHECK(whole.split().ranks == 1);
  for (const Parameter& parameter : whole.parameters()) {
    index_of_.emplace(parameter.name, static_cast<int>(shapes_.size()));
    shapes_.push_back({parameter.num_blocks, parameter.block_stride / kChunkElements});
  }
}

long NormTree::leaves_of(const NormNode& node) const {
  if (node.tree == Tree::kParameters) {
    return static_cast<long>(shapes_.size());
  }
  const Shape& shape = shapes_[static_cast<std::size_t>(node.parameter)];
  return node.tree == Tree::kBlocks ? shape.blocks : shape.chunks;
}

NormNode NormTree::root() const {
  return {.tree = Tree::kParameters, .node = tree_root(static_cast<long>(shapes_.size()))};
}

bool NormTree::has_right(const NormNode& node) const {
  return node.node.level > 0 && node.node.right().first_leaf() < leaves_of(node);
}

NormNode NormTree::left_of(const NormNode& node) {
  return {node.tree, node.parameter, node.block, node.node.left()};
}

NormNode NormTree::right_of(const NormNode& node) {
  return {node.tree, node.parameter, node.block, node.node.right()};
}

NormNode NormTree::below(const NormNode& leaf) const {
  NormNode node = leaf;
  const auto index = static_cast<int>(leaf.node.index);
  if (leaf.tree == Tree::kParameters) {
    node.tree = Tree::kBlocks;
    node.parameter = index;
  } else {
    node.tree = Tree::kChunks;
    node.block = index;
  }
  node.node = tree_root(leaves_of(node));
  return node;
}

double NormTree::value_of(const NormNode& node, ChunkValue chunk) const {
  if (node.node.level == 0) {
    return node.tree == Tree::kChunks ? chunk(node.parameter, node.block, node.node.index)
                                      : value_of(below(node), chunk);
  }
  const double left = value_of(left_of(node), chunk);
  return has_right(node) ? left + value_of(right_of(node), chunk) : left;
}

// Appends the nodes of the blocks that are not whole, and of those that are; true: nothing was
// appended because all of the parameter is there.
bool NormTree::cover_parameter(const Parameter& parameter,
                               int index,
                               const std::vector<IndexRange>& ranges,
                               std::vector<NormNode>& nodes) const {
  const Shape& shape = shapes_[static_cast<std::size_t>(index)];
  const long stride = shape.chunks * kChunkElements;
  std::vector<IndexRange> whole_blocks;
  for (int stored = 0; stored < parameter.num_blocks; ++stored) {
    const int block = parameter.first_block + stored;
    const long begin = parameter.offset + stored * stride;
    for (const IndexRange& range : ranges) {
      const long first = std::max(begin, range.begin);
      const long end = std::min(begin + stride, range.end);
      if (end - first == stride) {
        append_to(whole_blocks, block);
      } else if (first < end) {
        append({Tree::kChunks, index, block, {}},
               {(first - begin) / kChunkElements, (end - begin) / kChunkElements},
               shape.chunks,
               nodes);
      }
    }
  }
  if (whole_blocks.size() == 1 && whole_blocks[0].size() == shape.blocks) {
    return true;
  }
  for (const IndexRange& blocks : whole_blocks) {
    append({Tree::kBlocks, index, 0, {}}, blocks, shape.blocks, nodes);
  }
  return false;
}

std::vector<NormNode> NormTree::covering_nodes(const ParameterTable& table,
                                               const std::vector<IndexRange>& ranges,
                                               bool counts_replicated) const {
  std::vector<NormNode> nodes;
  std::vector<long> whole;
  for (const Parameter& parameter : table.parameters()) {
    if (parameter.is_copy || (!parameter.is_split() && !counts_replicated)) {
      continue;
    }
    const int index = index_of(parameter.name);
    if (cover_parameter(parameter, index, ranges, nodes)) {
      whole.push_back(index);
    }
  }
  std::sort(whole.begin(), whole.end());
  for (std::size_t i = 0; i < whole.size();) {
    std::size_t end = i + 1;
    while (end < whole.size() && whole[end] == whole[end - 1] + 1) {
      ++end;
    }
    for (const TreeNode node : lockstep::covering_nodes(
             whole[i], whole[end - 1] + 1, static_cast<long>(shapes_.size()))) {
      nodes.push_back({Tree::kParameters, 0, 0, node});
    }
    i = end;
  }
  return nodes;
}

NormCombination::NormCombination(const NormTree& tree, const std::vector<NormNode>& nodes)
    : num_values_(nodes.size()), result_(compile(tree, tree.root(), nodes)) {
  work_.resize(num_values_ + steps_.size());
}

std::size_t NormCombination::compile(const NormTree& tree,
                                     const NormNode& node,
                                     const std::vector<NormNode>& nodes) {
  const auto found = std::find(nodes.begin(), nodes.end(), node);
  if (found != nodes.end()) {
    return static_cast<std::size_t>(found - nodes.begin());
  }
  if (node.node.level == 0) {
    LOCKSTEP_CHECK(node.tree != Tree::kChunks);  // a chunk that no rank sums
    return compile(tree, tree.below(node), nodes);
  }
  const std::size_t left = compile(tree, NormTree::left_of(node), nodes);
  if (!tree.has_right(node)) {
    return left;
  }
  const std::size_t right = compile(tree, NormTree::right_of(node), nodes);
  steps_.push_back({left, right});
  return num_values_ + steps_.size() - 1;
}

double NormCombination::combine(const std::vector<double>& values) {
  std::copy(values.begin(), values.end(), work_.begin());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    work_[num_values_ + i] = work_[steps_[i].left] + work_[steps_[i].right];
  }
  return work_[result_];
}

}  // namespace lockstep
