#include "nn/parameter_table.h"

#include <set>

#include "kernels/reduce.h"
#include "support/catch.h"

namespace lockstep {
namespace {

// Query, key and value of 6, 2 and 2 rows, cut for `blocks`.
ParameterSpec fused(int blocks) {
  const auto part = [&](long size) { return SplitPart{size, (size + blocks - 1) / blocks}; };
  return {
      .name = "qkv", .shape = {10, 5}, .split_dimension = 0, .parts = {part(6), part(2), part(2)}};
}

struct Run {
  long canonical;
  long stored;
  long count;
  friend bool operator==(const Run&, const Run&) = default;
};

std::vector<Run> runs_of(const Parameter& parameter) {
  std::vector<Run> runs;
  parameter.for_each_run([&](long canonical, long stored, long count) {
    runs.push_back({canonical, stored, count});
  });
  return runs;
}

}  // namespace

TEST_CASE("parameters and their blocks start on whole chunks") {
  for (const int blocks : {1, 2, 3, 4}) {
    ParameterTable table(blocks);
    table.add({.name = "whole", .shape = {3}, .parts = {}});
    table.add(fused(blocks));
    table.add({.name = "large", .shape = {65, 65}, .parts = {}});
    table.add({.name = "last", .shape = {1}, .parts = {}});

    CHECK(table[0].offset == 0);
    CHECK(table[0].num_blocks == 1);
    CHECK(table[1].offset == kChunkElements);
    CHECK(table[1].num_blocks == blocks);
    CHECK(table[1].block_stride == kChunkElements);
    CHECK(table[2].offset == (1 + blocks) * kChunkElements);
    CHECK(table[2].block_stride == 2 * kChunkElements);  // 4,225 elements
    CHECK(table[3].offset == (3 + blocks) * kChunkElements);
    CHECK(table.flat_size() == (4 + blocks) * kChunkElements);
    CHECK(table.num_elements() == 3 + 50 + 65 * 65 + 1);
  }
}

TEST_CASE("a parameter that is not split is one run") {
  ParameterTable table(4);
  table.add({.name = "whole", .shape = {7, 3}, .parts = {}});

  CHECK(runs_of(table[0]) == std::vector<Run>{{0, 0, 21}});
}

TEST_CASE("rows of a fused weight are cut part by part") {
  ParameterTable table(2);
  table.add(fused(2));

  CHECK(table[0].block_rows == 5);
  CHECK(table[0].block_cols == 5);
  const long next = kChunkElements;
  CHECK(runs_of(table[0]) == std::vector<Run>{{0, 0, 15},
                                              {15, next, 15},
                                              {30, 15, 5},
                                              {35, next + 15, 5},
                                              {40, 20, 5},
                                              {45, next + 20, 5}});
}

TEST_CASE("columns are cut row by row and the last block is padded") {
  ParameterTable table(2);
  table.add({.name = "down", .shape = {2, 5}, .split_dimension = 1, .parts = {{5, 3}}});

  CHECK(table[0].block_rows == 2);
  CHECK(table[0].block_cols == 3);
  const long next = kChunkElements;
  CHECK(runs_of(table[0]) ==
        std::vector<Run>{{0, 0, 3}, {5, 3, 3}, {3, next, 2}, {8, next + 3, 2}});
}

TEST_CASE("a bias is cut like the rows of its weight") {
  ParameterTable table(3);
  table.add({.name = "bias", .shape = {7}, .split_dimension = 0, .parts = {{7, 3}}});

  CHECK(table[0].block_cols == 3);
  CHECK(runs_of(table[0]) ==
        std::vector<Run>{{0, 0, 3}, {3, kChunkElements, 3}, {6, 2 * kChunkElements, 1}});
}

TEST_CASE("a block may be of padding alone") {
  ParameterTable table(4);
  table.add({.name = "bias", .shape = {5}, .split_dimension = 0, .parts = {{5, 2}}});

  CHECK(table[0].num_blocks == 4);
  CHECK(runs_of(table[0]).size() == 3);
  CHECK(table.flat_size() == 4 * kChunkElements);
}

TEST_CASE("every element has one place of its own, whatever the number of blocks") {
  for (const int blocks : {1, 2, 3, 5, 8}) {
    ParameterTable table(blocks);
    table.add(fused(blocks));
    table.add({.name = "down",
               .shape = {4, 11},
               .split_dimension = 1,
               .parts = {{11, (11 + blocks - 1) / blocks}}});
    for (const Parameter& parameter : table.parameters()) {
      std::set<long> canonical;
      std::set<long> stored;
      for (const Run& run : runs_of(parameter)) {
        for (long i = 0; i < run.count; ++i) {
          canonical.insert(run.canonical + i);
          stored.insert(run.stored + i);
        }
      }
      const auto elements = static_cast<std::size_t>(parameter.num_elements());
      CHECK(canonical.size() == elements);
      CHECK(*canonical.rbegin() == parameter.num_elements() - 1);
      CHECK(stored.size() == elements);
      CHECK(*stored.rbegin() < parameter.stored_elements());
    }
  }
}

TEST_CASE("groups of a part are cut by themselves") {
  ParameterTable table(4);
  table.add({.name = "query", .shape = {6}, .split_dimension = 0, .parts = {{6, 2, 2}}});

  // Three rows a group, two blocks each.
  CHECK(runs_of(table[0]) == std::vector<Run>{{0, 0, 2},
                                              {2, kChunkElements, 1},
                                              {3, 2 * kChunkElements, 2},
                                              {5, 3 * kChunkElements, 1}});
}

TEST_CASE("every element of groups has one place of its own, on whichever rank") {
  for (const int blocks : {2, 4, 6, 8, 16}) {
    const auto part = [&](long size) {
      return SplitPart{size, ceil_div(size / 2, blocks / 2L), 2};
    };
    std::set<long> canonical;
    long runs = 0;
    for (const int ranks : {1, 2}) {
      canonical.clear();
      runs = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        ParameterTable table(TensorSplit(blocks, ranks, rank));
        table.add({.name = "qkv",
                   .shape = {34, 5},
                   .split_dimension = 0,
                   .parts = {part(18), part(8), part(8)}});
        std::set<long> stored;
        for (const Run& run : runs_of(table[0])) {
          for (long i = 0; i < run.count; ++i) {
            canonical.insert(run.canonical + i);
            stored.insert(run.stored + i);
            ++runs;
          }
        }
        CHECK(*stored.rbegin() < table[0].stored_elements());
        CHECK(runs - static_cast<long>(stored.size()) == rank * 34L * 5 / ranks);
      }
      CHECK(runs == 34L * 5);
      CHECK(canonical.size() == 34UL * 5);
      CHECK(*canonical.begin() == 0);
      CHECK(*canonical.rbegin() == 34L * 5 - 1);
    }
  }
}

TEST_CASE("a tied embedding has a region in front of the gradients") {
  ParameterTable table(2);
  table.add({.name = "positions", .shape = {4, 3}, .parts = {}});
  table.add({.name = "embedding",
             .shape = {9, 3},
             .split_dimension = 0,
             .parts = {{9, 5}},
             .tied_input = true});

  CHECK(table.tied_index() == 1);
  CHECK(table.tied_size() == 2 * kChunkElements);
  CHECK(table.gradient_size() == table.tied_size() + table.flat_size());
  CHECK(table.num_elements() == 12 + 27);
}

TEST_CASE("without a tied embedding gradients are laid out like the weights") {
  ParameterTable table(2);
  table.add({.name = "whole", .shape = {3}, .parts = {}});

  CHECK(table.tied_index() == -1);
  CHECK(table.tied_size() == 0);
  CHECK(table.gradient_size() == table.flat_size());
}

TEST_CASE("weight decay acts on parameters of two dimensions") {
  ParameterTable table(1);
  table.add({.name = "weight", .shape = {3, 1}, .parts = {}});
  table.add({.name = "bias", .shape = {3}, .parts = {}});

  CHECK(table[0].decays());
  CHECK_FALSE(table[1].decays());
}

}  // namespace lockstep
