#include "base/aligned_tree.h"

#include "support/catch.h"

namespace lockstep {
namespace {

float sum_node(const std::vector<float>& leaves, TreeNode node) {
  const long count = static_cast<long>(leaves.size());
  if (node.level == 0) {
    return leaves[static_cast<std::size_t>(node.index)];
  }
  const float left = sum_node(leaves, node.left());
  return node.right().first_leaf() < count ? left + sum_node(leaves, node.right()) : left;
}

}  // namespace

TEST_CASE("the recursive and the level-by-level aligned tree give the same bits") {
  for (long count = 1; count <= 33; ++count) {
    std::vector<float> leaves;
    for (long i = 0; i < count; ++i) {
      leaves.push_back(1.0F / static_cast<float>(3 + 7 * i));
    }
    CHECK(sum_node(leaves, tree_root(count)) == tree_sum(leaves));
  }
}

TEST_CASE("covering nodes are maximal and complete") {
  CHECK((covering_nodes(0, 4, 4) == std::vector<TreeNode>{{2, 0}}));
  CHECK((covering_nodes(1, 4, 4) == std::vector<TreeNode>{{0, 1}, {1, 1}}));
  CHECK((covering_nodes(4, 5, 5) == std::vector<TreeNode>{{2, 1}}));
  CHECK((covering_nodes(0, 3, 6) == std::vector<TreeNode>{{1, 0}, {0, 2}}));
}

TEST_CASE("a subtree owned by one rank gives the bits of the whole tree") {
  std::vector<float> leaves;
  for (int i = 0; i < 8; ++i) {
    leaves.push_back(1.0F / static_cast<float>(1 + i * i));
  }
  const std::vector<float> roots{tree_sum(std::vector<float>(leaves.begin(), leaves.begin() + 4)),
                                 tree_sum(std::vector<float>(leaves.begin() + 4, leaves.end()))};
  CHECK(tree_sum(roots) == tree_sum(leaves));
}

TEST_CASE("no leaves sum to zero") {
  CHECK(tree_sum(std::vector<float>{}) == 0.0F);
}

}  // namespace lockstep
