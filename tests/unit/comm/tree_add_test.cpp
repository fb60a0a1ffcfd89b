#include "comm/mpi/tree_add.h"

#include <vector>

#include "support/catch.h"

namespace lockstep {
namespace {

float element(long leaf, long i) {
  return 1.0F / static_cast<float>(3 + leaf * 7 + i % 1009);
}

std::vector<std::vector<float>> leaves_of(long leaves, long count) {
  std::vector<std::vector<float>> rows;
  for (long leaf = 0; leaf < leaves; ++leaf) {
    rows.emplace_back();
    for (long i = 0; i < count; ++i) {
      rows.back().push_back(element(leaf, i));
    }
  }
  return rows;
}

float expected_sum(long begin, long end, long i) {
  std::vector<float> values;
  for (long leaf = begin; leaf < end; ++leaf) {
    values.push_back(element(leaf, i));
  }
  return tree_sum(values);
}

}  // namespace

TEST_CASE("leaves are added in the order of the aligned tree, into inputs too") {
  const long count = 2100;
  for (long leaves = 1; leaves <= 19; ++leaves) {
    CAPTURE(leaves);
    auto rows = leaves_of(leaves, count);
    std::vector<TreeNode> nodes;
    std::vector<const float*> inputs;
    std::vector<float*> outputs;
    for (long leaf = 0; leaf < leaves; ++leaf) {
      nodes.push_back({0, leaf});
      inputs.push_back(rows[static_cast<std::size_t>(leaf)].data());
      outputs.push_back(rows[static_cast<std::size_t>(leaf)].data());
    }

    TreeAdd(nodes, tree_root(leaves), leaves).run(inputs, outputs, count, nullptr);

    long wrong = 0;
    for (long i = 0; i < count; ++i) {
      for (const auto& row : rows) {
        wrong += row[static_cast<std::size_t>(i)] == expected_sum(0, leaves, i) ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("inner nodes that others added up give the same bits as their leaves") {
  const long leaves = 11;
  const long count = 70;
  auto rows = leaves_of(leaves, count);
  for (long split = 1; split < leaves; ++split) {
    CAPTURE(split);
    auto nodes = covering_nodes(0, split, leaves);
    const auto upper = covering_nodes(split, leaves, leaves);
    nodes.insert(nodes.end(), upper.begin(), upper.end());
    std::vector<std::vector<float>> values;
    std::vector<const float*> inputs;
    for (const TreeNode node : nodes) {
      values.emplace_back();
      for (long i = 0; i < count; ++i) {
        values.back().push_back(expected_sum(node.first_leaf(), node.end_leaf(leaves), i));
      }
    }
    for (const auto& value : values) {
      inputs.push_back(value.data());
    }
    std::vector<float> sum(static_cast<std::size_t>(count));
    std::vector<float*> outputs{sum.data()};

    TreeAdd(nodes, tree_root(leaves), leaves).run(inputs, outputs, count, nullptr);

    long wrong = 0;
    for (long i = 0; i < count; ++i) {
      wrong += sum[static_cast<std::size_t>(i)] == expected_sum(0, leaves, i) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("threads leave the bits of a long sum") {
  const long count = 200'001;
  auto rows = leaves_of(3, count);
  const std::vector<TreeNode> nodes{{0, 0}, {0, 1}, {0, 2}};
  const std::vector<const float*> inputs{rows[0].data(), rows[1].data(), rows[2].data()};
  std::vector<float> alone(static_cast<std::size_t>(count));
  std::vector<float> together(static_cast<std::size_t>(count));
  ThreadPool threads(3);
  const TreeAdd add(nodes, tree_root(3), 3);

  add.run(inputs, std::vector<float*>{alone.data()}, count, nullptr);
  add.run(inputs, std::vector<float*>{together.data()}, count, &threads);

  CHECK(alone == together);
}

}  // namespace lockstep
