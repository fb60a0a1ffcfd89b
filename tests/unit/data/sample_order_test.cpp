#include "data/sample_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/catch.h"

namespace lockstep {
namespace {

std::vector<long> order_of(const SampleOrder& order, long epoch) {
  std::vector<long> samples;
  for (long place = 0; place < order.num_samples(); ++place) {
    samples.push_back(order.sample_at(epoch, place));
  }
  return samples;
}

std::vector<long> identity(long count) {
  std::vector<long> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0L);
  return samples;
}

}  // namespace

TEST_CASE("every epoch has each sample exactly once, for any number of samples") {
  for (const long count : {1, 2, 3, 4, 5, 7, 11, 16, 17, 63, 64, 65, 1000, 4096, 4097, 10'000}) {
    for (const long epoch : {0L, 1L, 7L}) {
      std::vector<long> samples = order_of(SampleOrder(3, count, true), epoch);
      std::sort(samples.begin(), samples.end());
      CHECK(samples == identity(count));
    }
  }
}

TEST_CASE("the order is the same on every machine") {
  // Computed by a separate implementation in Python, with both numbers of rounds.
  CHECK(order_of(SampleOrder(1, 10, true), 0) == std::vector<long>{3, 6, 9, 7, 1, 4, 0, 2, 8, 5});
  const SampleOrder larger(1, 1000, true);
  const std::vector<long> expected{456, 855, 87, 869, 420, 397, 968, 255};
  for (std::size_t place = 0; place < expected.size(); ++place) {
    CHECK(larger.sample_at(3, static_cast<long>(place)) == expected[place]);
  }
}

TEST_CASE("orders differ between epochs and between seeds, and repeat for equal ones") {
  const SampleOrder order(1, 100, true);
  CHECK(order_of(order, 0) == order_of(SampleOrder(1, 100, true), 0));
  CHECK(order_of(order, 0) != order_of(order, 1));
  CHECK(order_of(order, 1) != order_of(order, 2));
  CHECK(order_of(order, 0) != order_of(SampleOrder(2, 100, true), 0));
  CHECK(order_of(order, 0) != order_of(SampleOrder(1UL << 32U | 1UL, 100, true), 0));
  CHECK(order_of(order, 0) != order_of(order, 1L << 32U));
}

TEST_CASE("without shuffling the order is that of the data set in every epoch") {
  const SampleOrder order(1, 100, false);
  CHECK(order_of(order, 0) == identity(100));
  CHECK(order_of(order, 5) == identity(100));
}

TEST_CASE("every sample comes to every place equally often, also in small data sets") {
  constexpr long kEpochs = 20'000;
  for (const long samples : {2, 3, 5, 7, 11, 17}) {
    const SampleOrder order(9, samples, true);
    const auto size = static_cast<std::size_t>(samples);
    std::vector<long> counts(size * size);  // [place, sample]
    for (long epoch = 0; epoch < kEpochs; ++epoch) {
      for (long place = 0; place < samples; ++place) {
        ++counts[static_cast<std::size_t>(place * samples + order.sample_at(epoch, place))];
      }
    }

    // Five standard deviations of a binomial count, for each pair.
    const double share = 1.0 / static_cast<double>(samples);
    const double tolerance = 5 * std::sqrt(kEpochs * share * (1 - share));
    for (const long count : counts) {
      INFO("samples " << samples);
      CHECK(std::abs(static_cast<double>(count) - kEpochs * share) < tolerance);
    }
  }
}

TEST_CASE("a huge data set needs no memory and stays in range") {
  constexpr long kCount = (1L << 40U) + 12345;
  const SampleOrder order(1, kCount, true);
  for (long place = kCount - 1000; place < kCount; ++place) {
    const long sample = order.sample_at(0, place);
    CHECK((sample >= 0 && sample < kCount));
  }
}

TEST_CASE("with steps set, batches run on over the end of an epoch") {
  const BatchPlan plan = BatchPlan::for_steps(10, 4, 6);

  CHECK(plan.num_steps() == 6);
  CHECK(plan.largest_batch() == 4);
  for (long step = 0; step < 6; ++step) {
    CHECK(plan.batch(step).first_position == 4 * step);
    CHECK(plan.batch(step).num_samples == 4);
    CHECK(plan.samples_after(step) == 4 * (step + 1));
  }
  CHECK(plan.epoch_of(9) == 0);
  CHECK(plan.epoch_of(10) == 1);
  CHECK(plan.epochs_after(4) == 2.0);
}

TEST_CASE("with epochs set, the last batch of an epoch is its remainder") {
  const BatchPlan plan = BatchPlan::for_epochs(10, 4, 2);

  CHECK(plan.num_steps() == 6);
  const std::vector<long> firsts{0, 4, 8, 10, 14, 18};
  const std::vector<long> counts{4, 4, 2, 4, 4, 2};
  for (long step = 0; step < 6; ++step) {
    CHECK(plan.batch(step).first_position == firsts[static_cast<std::size_t>(step)]);
    CHECK(plan.batch(step).num_samples == counts[static_cast<std::size_t>(step)]);
  }
  CHECK(plan.epochs_after(2) == 1.0);
  CHECK(plan.epochs_after(5) == 2.0);
}

TEST_CASE("3 samples train with a batch of 4") {
  const BatchPlan epochs = BatchPlan::for_epochs(3, 4, 2);
  CHECK(epochs.num_steps() == 2);
  CHECK(epochs.largest_batch() == 3);
  CHECK(epochs.batch(1).first_position == 3);
  CHECK(epochs.batch(1).num_samples == 3);

  const BatchPlan steps = BatchPlan::for_steps(3, 4, 2);
  CHECK(steps.batch(1).first_position == 4);
  CHECK(steps.batch(1).num_samples == 4);
}

TEST_CASE("a batch is cut into micro-batches, of which the last may be smaller") {
  CHECK(num_micro_batches(10, 4) == 3);
  CHECK(num_micro_batches(8, 4) == 2);
  CHECK(num_micro_batches(0, 4) == 0);
  CHECK(micro_batch_range(10, 4, 1).first_sample == 4);
  CHECK(micro_batch_range(10, 4, 1).num_samples == 4);
  CHECK(micro_batch_range(10, 4, 2).first_sample == 8);
  CHECK(micro_batch_range(10, 4, 2).num_samples == 2);
}

}  // namespace lockstep
