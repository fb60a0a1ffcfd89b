// The aligned tree: the one order in which partial sums of ranks, blocks and chunks are combined.
//
// Leaves 0..n-1 are combined level by level: neighbours (2i, 2i+1) are added, an odd last one moves
// up unchanged. The tree over n leaves is therefore fixed by n alone, and the part of it over an
// aligned group of 2^k leaves can be computed by whoever owns the group, without changing a bit.
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// A node of the tree: the leaves [index * 2^level, min((index + 1) * 2^level, leaves)).
struct TreeNode {
  int level = 0;
  long index = 0;

  [[nodiscard]] constexpr long first_leaf() const { return index << level; }
  [[nodiscard]] constexpr long end_leaf(long leaves) const {
    const long full = (index + 1) << level;
    return full < leaves ? full : leaves;
  }
  [[nodiscard]] constexpr TreeNode left() const { return {level - 1, 2 * index}; }
  [[nodiscard]] constexpr TreeNode right() const { return {level - 1, 2 * index + 1}; }
  friend constexpr bool operator==(TreeNode a, TreeNode b) = default;
};

/// The root over `leaves` leaves.
constexpr TreeNode tree_root(long leaves) {
  return {static_cast<int>(std::bit_width(static_cast<unsigned long>(leaves > 0 ? leaves - 1 : 0))),
          0};
}

/// The fewest nodes that together cover exactly the leaves [begin, end), in order. A node at the
/// right edge counts as wholly inside when its existing leaves are.
inline std::vector<TreeNode> covering_nodes(long begin, long end, long leaves) {
  std::vector<TreeNode> nodes;
  while (begin < end) {
    TreeNode node{0, begin};
    for (int level = 1; level <= tree_root(leaves).level; ++level) {
      const TreeNode parent{level, begin >> level};
      if (parent.first_leaf() != begin || parent.end_leaf(leaves) > end) {
        break;
      }
      node = parent;
    }
    nodes.push_back(node);
    begin = node.end_leaf(leaves);
  }
  return nodes;
}

/// Sums `values` in tree order, in place (their contents are lost). T{} if there are none.
template <typename T>
T tree_sum_in_place(std::span<T> values) {
  if (values.empty()) {
    return T{};
  }
  for (std::size_t count = values.size(); count > 1; count = (count + 1) / 2) {
    for (std::size_t i = 0; i < count / 2; ++i) {
      values[i] = values[2 * i] + values[2 * i + 1];
    }
    if (count % 2 == 1) {
      values[count / 2] = values[count - 1];
    }
  }
  return values.front();
}

/// As above, of a copy.
template <typename T>
T tree_sum(std::vector<T> values) {
  return tree_sum_in_place(std::span<T>(values));
}

}  // namespace lockstep
