#include "parallel/buckets.h"

#include <algorithm>

#include "kernels/reduce.h"
#include "nn/model.h"
#include "support/catch.h"
#include "unit/nn/tiny_model.h"

namespace lockstep {
namespace {

constexpr long kBytesOfChunk = kChunkElements * 4;

std::vector<IndexRange> all_of(const ParameterTable& table) {
  return {{0, table.flat_size()}};
}

long total_size(const std::vector<IndexRange>& ranges) {
  long sum = 0;
  for (const IndexRange& range : ranges) {
    sum += range.size();
  }
  return sum;
}

}  // namespace

TEST_CASE("buckets cover the gradients once, from the end to the front") {
  for (const bool tied : {false, true}) {
    const auto model = make_model(test::tiny_config("gpt2", tied), DType::kF32, 2);
    const ParameterTable& table = model->parameters();
    for (const long chunks : {1L, 3L, 7L, 1000L}) {
      const auto buckets = make_buckets(table, all_of(table), chunks * kBytesOfChunk);
      long end = table.gradient_size();
      for (const IndexRange& bucket : buckets) {
        CHECK(bucket.end == end);
        CHECK(bucket.size() > 0);
        CHECK(bucket.size() <= chunks * kChunkElements);
        CHECK(bucket.size() % kChunkElements == 0);
        end = bucket.begin;
      }
      CHECK(end == 0);
    }
  }
}

TEST_CASE("owners share the parameters without overlap, whatever divides") {
  const auto model = make_model(test::tiny_config("llama"), DType::kF32, 1);
  const ParameterTable& table = model->parameters();
  const auto buckets = make_buckets(table, all_of(table), 5 * kBytesOfChunk);
  for (const int ranks : {1, 2, 3, 7}) {
    std::vector<IndexRange> all;
    long largest = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto own = owned_ranges(table, buckets, ranks, rank);
      largest = std::max(largest, total_size(own));
      all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end(), [](const IndexRange& a, const IndexRange& b) {
      return a.begin < b.begin;
    });
    long end = 0;
    for (const IndexRange& range : all) {
      CHECK(range.begin == end);
      end = range.end;
    }
    CHECK(end == table.flat_size());
    CHECK(largest <=
          table.flat_size() / ranks + static_cast<long>(buckets.size()) * kChunkElements);
  }
}

TEST_CASE("both sides of a tied embedding are cut alike") {
  const auto model = make_model(test::tiny_config("gpt2"), DType::kF32, 3);
  const ParameterTable& table = model->parameters();
  const long first = table.tied_size() + table[table.tied_index()].offset;
  const auto buckets = make_buckets(table, all_of(table), 2 * kBytesOfChunk);
  for (const IndexRange& bucket : buckets) {
    if (bucket.begin >= table.tied_size()) {
      continue;
    }
    const auto twin = std::find_if(buckets.begin(), buckets.end(), [&](const IndexRange& other) {
      return other.begin == first + bucket.begin && other.end == first + bucket.end;
    });
    CHECK(twin != buckets.end());
  }
}

TEST_CASE("no bucket spans two chunks of a pipeline's rank") {
  const auto parts =
      make_model_parts(test::tiny_config("gpt2"),
                       DType::kF32,
                       1,
                       {{.first_layer = 0, .end_layer = 1, .has_head = false},
                        {.first_layer = 1, .end_layer = 2, .embeds = false, .has_head = false}});
  const ParameterTable& table = parts[0]->parameters();
  const std::vector<IndexRange> chunks{parts[0]->own_elements(), parts[1]->own_elements()};
  CHECK(chunks[0].end == chunks[1].begin);
  for (const IndexRange& bucket : make_buckets(table, chunks, 1000 * kBytesOfChunk)) {
    CHECK((bucket.end <= chunks[1].begin || bucket.begin >= chunks[1].begin));
  }
}

}  // namespace lockstep
