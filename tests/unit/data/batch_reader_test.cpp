#include "data/batch_reader.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/synthetic_dataset.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr long kLength = 3;

/// Sample s has the inputs 10s, 10s + 1, 10s + 2 and the targets one more; the target 10s + 1 of
/// every third sample is ignored. Reading sample `bad_sample` throws.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(long num_samples, std::int64_t ignore_token = -1, long bad_sample = -1)
      : Dataset({SampleKind::kTokens, num_samples, kLength, kLength, 0, ignore_token}),
        bad_sample_(bad_sample) {}

  void read(std::span<const long> samples, SampleBuffers out) const override {
    for (const long sample : samples) {
      if (sample == bad_sample_) {
        throw std::runtime_error("cannot read sample " + std::to_string(sample));
      }
      for (long i = 0; i < kLength; ++i) {
        *out.tokens++ = static_cast<std::int32_t>(10 * sample + i);
        *out.targets++ = static_cast<std::int32_t>(10 * sample + i + 1);
      }
    }
  }
  [[nodiscard]] long largest_target(long, long) const override { return 10 * num_samples(); }

 protected:
  [[nodiscard]] long count_ignored(std::span<const long> samples) const override {
    return std::count_if(samples.begin(), samples.end(), [](long s) { return s % 3 == 0; });
  }

 private:
  long bad_sample_;
};

/// The samples of one rank, micro-batch number to samples.
using Seen = std::map<long, std::vector<long>>;

Seen seen_in(const StepBatch& batch) {
  Seen seen;
  for (const MicroBatch& micro : batch.micro_batches) {
    CHECK(micro.features == nullptr);
    for (long i = 0; i < micro.num_samples; ++i) {
      CHECK(micro.targets[i * kLength] == micro.tokens[i * kLength] + 1);
      seen[micro.index].push_back(micro.tokens[i * kLength] / 10);
    }
  }
  return seen;
}

BatchReaderOptions options_of(long micro_batch_size, long num_virtual, long begin, long end) {
  BatchReaderOptions options;
  options.micro_batch_size = micro_batch_size;
  options.num_virtual = num_virtual;
  options.virtual_begin = begin;
  options.virtual_end = end;
  return options;
}

}  // namespace

TEST_CASE("over all ranks every epoch reads each sample exactly once, in the one global order") {
  for (const long samples : {1, 3, 11, 44, 101}) {
    const CountingDataset dataset(samples);
    const SampleOrder order(4, samples, true);
    const BatchPlan plan = BatchPlan::for_epochs(samples, 16, 2);
    for (const long ranks : {1, 2, 3, 4, 7}) {
      std::map<long, Seen> steps;
      for (long rank = 0; rank < ranks; ++rank) {
        BatchReader reader(dataset, order, plan, options_of(3, ranks, rank, rank + 1));
        long steps_of_rank = 0;
        while (reader.has_next()) {
          const StepBatch& batch = reader.next();
          CHECK(batch.step == steps_of_rank++);
          CHECK(batch.num_targets == batch.num_samples * kLength);
          steps[batch.step].merge(seen_in(batch));
        }
        CHECK(steps_of_rank == plan.num_steps());
      }
      std::vector<long> read;
      std::vector<long> expected;
      for (const auto& [step, micro_batches] : steps) {
        for (const auto& [index, list] : micro_batches) {
          read.insert(read.end(), list.begin(), list.end());
        }
      }
      for (long position = 0; position < 2 * samples; ++position) {
        expected.push_back(order.sample_at_position(position));
      }
      CHECK(read == expected);
    }
  }
}

TEST_CASE("11 micro-batches on 3 ranks are shared as 3, 4 and 4, and all ranks take every step") {
  const CountingDataset dataset(11);
  const SampleOrder order(1, 11, false);
  const BatchPlan plan = BatchPlan::for_epochs(11, 11, 3);
  const std::vector<std::vector<long>> owned{{0, 1, 2}, {3, 4, 5, 6}, {7, 8, 9, 10}};
  for (long rank = 0; rank < 3; ++rank) {
    BatchReader reader(dataset, order, plan, options_of(1, 3, rank, rank + 1));
    for (long step = 0; step < 3; ++step) {
      const StepBatch& batch = reader.next();
      CHECK(batch.num_micro_batches == 11);
      std::vector<long> indices;
      for (const MicroBatch& micro : batch.micro_batches) {
        indices.push_back(micro.index);
        CHECK(micro.first_sample == micro.index);
      }
      CHECK(indices == owned[static_cast<std::size_t>(rank)]);
    }
    CHECK_FALSE(reader.has_next());
  }
}

TEST_CASE("a rank without micro-batches still learns of the step") {
  const CountingDataset dataset(2);
  BatchReader reader(
      dataset, SampleOrder(1, 2, false), BatchPlan::for_epochs(2, 8, 1), options_of(1, 5, 0, 1));

  const StepBatch& batch = reader.next();

  CHECK(batch.micro_batches.empty());
  CHECK(batch.num_samples == 2);
  CHECK(batch.num_targets == 2 * kLength);
}

TEST_CASE("3 samples with a batch of 4 wrap within one batch when steps are set") {
  const CountingDataset dataset(3);
  BatchReader reader(
      dataset, SampleOrder(1, 3, false), BatchPlan::for_steps(3, 4, 2), options_of(4, 1, 0, 1));

  CHECK(seen_in(reader.next()) == Seen{{0, {0, 1, 2, 0}}});
  CHECK(seen_in(reader.next()) == Seen{{0, {1, 2, 0, 1}}});
}

TEST_CASE("a rank with several virtual ranks reads what they would read one by one") {
  const CountingDataset dataset(50);
  const SampleOrder order(2, 50, true);
  const BatchPlan plan = BatchPlan::for_epochs(50, 22, 2);
  BatchReader both(dataset, order, plan, options_of(2, 8, 2, 4));
  BatchReader first(dataset, order, plan, options_of(2, 8, 2, 3));
  BatchReader second(dataset, order, plan, options_of(2, 8, 3, 4));
  while (both.has_next()) {
    Seen expected = seen_in(first.next());
    expected.merge(seen_in(second.next()));
    CHECK(seen_in(both.next()) == expected);
  }
}

TEST_CASE("a reading thread gives the same bytes as reading in the caller, from any first step") {
  SyntheticOptions synthetic;
  synthetic.num_samples = 37;
  synthetic.ignore_token = 1;
  const SyntheticImageDataset dataset(synthetic, 19, 4);
  const SampleOrder order(2, 37, true);
  const BatchPlan plan = BatchPlan::for_steps(37, 10, 40);
  for (const long first_step : {0L, 1L, 39L}) {
    BatchReaderOptions options = options_of(3, 2, 1, 2);
    options.first_step = first_step;
    options.read_ahead = ReadAhead::kInline;
    BatchReader inline_reader(dataset, order, plan, options);
    options.read_ahead = ReadAhead::kThread;
    BatchReader thread_reader(dataset, order, plan, options);
    CHECK_FALSE(inline_reader.reads_ahead());
    CHECK(thread_reader.reads_ahead());
    for (long step = first_step; step < 40; ++step) {
      const StepBatch& a = inline_reader.next();
      const StepBatch& b = thread_reader.next();
      CHECK(a.step == step);
      CHECK(b.step == step);
      CHECK(a.num_targets == b.num_targets);
      REQUIRE(a.micro_batches.size() == b.micro_batches.size());
      for (std::size_t i = 0; i < a.micro_batches.size(); ++i) {
        const MicroBatch& left = a.micro_batches[i];
        const MicroBatch& right = b.micro_batches[i];
        CHECK(left.index == right.index);
        REQUIRE(left.num_samples == right.num_samples);
        CHECK(std::equal(left.features, left.features + left.num_samples * 19, right.features));
        CHECK(std::equal(left.targets, left.targets + left.num_samples, right.targets));
      }
    }
    CHECK_FALSE(thread_reader.has_next());
  }
}

TEST_CASE("the trained targets are those of the whole global batch, not of the rank") {
  const CountingDataset dataset(10, 1);
  BatchReader reader(
      dataset, SampleOrder(1, 10, false), BatchPlan::for_epochs(10, 6, 1), options_of(2, 3, 0, 1));

  CHECK(reader.next().num_targets == 6 * kLength - 2);  // samples 0 and 3
  CHECK(reader.next().num_targets == 4 * kLength - 2);  // samples 6 and 9
}

TEST_CASE("steps of more than a mebibyte are read ahead, smaller ones are not") {
  SyntheticOptions synthetic;
  synthetic.num_samples = 600;
  const SyntheticImageDataset dataset(synthetic, 1023, 4);  // 4 KiB a sample with its target
  const SampleOrder order(2, 600, true);
  const BatchReader small(
      dataset, order, BatchPlan::for_steps(600, 256, 2), options_of(1, 1, 0, 1));
  const BatchReader large(
      dataset, order, BatchPlan::for_steps(600, 257, 2), options_of(1, 1, 0, 1));
  const BatchReader shared(
      dataset, order, BatchPlan::for_steps(600, 257, 2), options_of(1, 2, 0, 1));

  CHECK_FALSE(small.reads_ahead());
  CHECK(large.reads_ahead());
  CHECK_FALSE(shared.reads_ahead());
  CHECK(small.buffer_bytes() == 256 * (4096 + sizeof(long)));
  CHECK(large.buffer_bytes() == 257 * (2 * 4096 + sizeof(long)));
}

TEST_CASE("an error of reading reaches the caller at its step, and again after it") {
  const CountingDataset dataset(10, -1, 5);
  for (const ReadAhead mode : {ReadAhead::kInline, ReadAhead::kThread}) {
    BatchReaderOptions options = options_of(2, 1, 0, 1);
    options.read_ahead = mode;
    BatchReader reader(dataset, SampleOrder(1, 10, false), BatchPlan::for_steps(10, 2, 5), options);

    CHECK(seen_in(reader.next()) == Seen{{0, {0, 1}}});
    CHECK(seen_in(reader.next()) == Seen{{0, {2, 3}}});
    CHECK_THROWS_WITH(reader.next(), "cannot read sample 5");
    CHECK_THROWS_WITH(reader.next(), "cannot read sample 5");
  }
}

TEST_CASE("a reader that is destroyed early, or has no step, stops its thread") {
  const CountingDataset dataset(10);
  BatchReaderOptions options = options_of(2, 1, 0, 1);
  options.read_ahead = ReadAhead::kThread;
  {
    BatchReader reader(dataset, SampleOrder(1, 10, false), BatchPlan::for_steps(10, 2, 5), options);
    CHECK(reader.next().step == 0);
  }
  const BatchReader reader(
      dataset, SampleOrder(1, 10, false), BatchPlan::for_steps(10, 2, 0), options);
  CHECK_FALSE(reader.has_next());
}

}  // namespace lockstep
