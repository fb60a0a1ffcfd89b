#include "parallel/norm_tree.h"

#include <cmath>
#include <vector>

#include "kernels/reduce.h"
#include "nn/model.h"
#include "parallel/buckets.h"
#include "support/catch.h"
#include "unit/nn/tiny_model.h"

namespace lockstep {
namespace {

// Any number that tells chunks apart and whose sums depend on their order.
struct ValueOfChunk {
  double operator()(int parameter, int block, long chunk) const {
    return std::sin(1.0 + 31.0 * parameter + 7.0 * block + 1.3 * static_cast<double>(chunk));
  }
};
const ValueOfChunk value_of_chunk;

// What ranks with these tables and ranges say, combined.
struct Part {
  const ParameterTable* table;
  std::vector<IndexRange> ranges;
  bool counts_replicated;
};

double combine(const NormTree& tree, const std::vector<Part>& parts) {
  std::vector<NormNode> nodes;
  std::vector<double> values;
  for (const Part& part : parts) {
    for (const NormNode& node :
         tree.covering_nodes(*part.table, part.ranges, part.counts_replicated)) {
      nodes.push_back(node);
      values.push_back(tree.value_of(node, value_of_chunk));
    }
  }
  NormCombination combination(tree, nodes);
  return combination.combine(values);
}

}  // namespace

TEST_CASE("the norm is the same sum however ranks share it") {
  const ModelConfig config = test::tiny_config("gpt2");
  const auto whole = make_model(config, DType::kF32, 2);
  const ParameterTable& table = whole->parameters();
  const NormTree tree(table);
  const double expected = tree.value_of(tree.root(), value_of_chunk);
  const long size = table.flat_size();

  CHECK(combine(tree, {{&table, {{0, size}}, true}}) == expected);

  for (const long cut : {kChunkElements, 5 * kChunkElements, size - kChunkElements}) {
    CHECK(combine(tree, {{&table, {{0, cut}}, true}, {&table, {{cut, size}}, true}}) == expected);
  }

  const auto left = make_model(config, DType::kF32, TensorSplit(2, 2, 0));
  const auto right = make_model(config, DType::kF32, TensorSplit(2, 2, 1));
  const ParameterTable& left_table = left->parameters();
  const ParameterTable& right_table = right->parameters();
  CHECK(combine(tree,
                {{&left_table, {{0, left_table.flat_size()}}, true},
                 {&right_table, {{0, right_table.flat_size()}}, false}}) == expected);
}

TEST_CASE("the norm of stages and shards is that of one rank") {
  const ModelConfig config = test::tiny_config("llama");
  const auto whole = make_model(config, DType::kF32, 1);
  const NormTree tree(whole->parameters());
  const double expected = tree.value_of(tree.root(), value_of_chunk);
  // The tied embedding is on both stages and counts on the last one.
  const auto first = make_model_parts(
      config, DType::kF32, 1, {{.first_layer = 0, .end_layer = 1, .has_head = false}});
  const auto last = make_model_parts(
      config, DType::kF32, 1, {{.first_layer = 1, .end_layer = 2, .embeds = false}});
  std::vector<Part> parts;
  for (const auto* stage : {&first, &last}) {
    const ParameterTable& table = stage->front()->parameters();
    const std::vector<IndexRange> chunks{stage->front()->own_elements()};
    const auto buckets = make_buckets(table, chunks, 5 * kChunkElements * 4);
    for (int rank = 0; rank < 3; ++rank) {
      parts.push_back({&table, owned_ranges(table, buckets, 3, rank), true});
    }
  }

  CHECK(combine(tree, parts) == expected);
}

TEST_CASE("a part that nobody sums is a bug") {
  const auto whole = make_model(test::tiny_config("gpt2"), DType::kF32, 2);
  const ParameterTable& table = whole->parameters();
  const NormTree tree(table);
  CHECK_THROWS(combine(tree, {{&table, {{kChunkElements, table.flat_size()}}, true}}));
}

}  // namespace lockstep
