#include "parallel/layer_split.h"

#include <algorithm>
#include <vector>

#include "support/catch.h"

namespace lockstep {
namespace {

std::vector<long> sizes(const std::vector<IndexRange>& ranges) {
  std::vector<long> all;
  long end = 0;
  for (const IndexRange& range : ranges) {
    CHECK(range.begin == end);
    end = range.end;
    all.push_back(range.size());
  }
  return all;
}

}  // namespace

TEST_CASE("layers are spread so that the most expensive stage costs least") {
  CHECK(sizes(split_layers(8, 4, 0, 0)) == std::vector<long>{2, 2, 2, 2});
  CHECK(sizes(split_layers(7, 4, 0, 0)) == std::vector<long>{1, 2, 2, 2});
  // A head that costs two layers leaves the last stage fewer.
  CHECK(sizes(split_layers(10, 3, 0, 2)) == std::vector<long>{4, 4, 2});
  CHECK(sizes(split_layers(10, 3, 2, 2)) == std::vector<long>{2, 5, 3});
  // Never none, however expensive the head is.
  CHECK(sizes(split_layers(5, 3, 0, 100)) == std::vector<long>{2, 2, 1});
  // Not eleven layers on all stages but the last.
  CHECK(sizes(split_layers(80, 8, 0, 1.2)) == std::vector<long>{10, 10, 10, 10, 10, 10, 11, 9});
  CHECK(sizes(split_layers(3, 3, 1, 1)) == std::vector<long>{1, 1, 1});
}

TEST_CASE("the largest cost is the least there is") {
  // Against all ways to cut.
  for (const double head : {0.0, 0.7, 3.2}) {
    for (long layers = 3; layers <= 9; ++layers) {
      double best = 1e9;
      for (long a = 1; a < layers - 1; ++a) {
        for (long b = 1; a + b < layers; ++b) {
          const double costs[] = {double(a), double(b), double(layers - a - b) + head};
          best = std::min(best, *std::max_element(std::begin(costs), std::end(costs)));
        }
      }
      const auto found = sizes(split_layers(layers, 3, 0, head));
      const double largest =
          std::max({double(found[0]), double(found[1]), double(found[2]) + head});
      CHECK(largest == best);
    }
  }
}

TEST_CASE("the ends of a model know that they are") {
  ModelConfig model;
  model.num_layers = 7;
  model.vocab_size = 101;
  const auto parts = split_model(model, 3);
  CHECK(parts.front().embeds);
  CHECK(!parts.front().has_head);
  CHECK(!parts[1].embeds);
  CHECK(!parts[1].has_head);
  CHECK(parts.back().has_head);
  CHECK(parts.back().end_layer == 7);
}

}  // namespace lockstep
