#include "training/evaluator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/aligned_tree.h"
#include "base/integers.h"
#include "data/sample_order.h"

namespace lockstep {

Evaluator::Evaluator(const Dataset& dataset, long micro_batch_size, long max_samples)
    : dataset_(&dataset),
      micro_batch_size_(micro_batch_size),
      num_samples_(max_samples > 0 ? std::min(max_samples, dataset.num_samples())
                                   : dataset.num_samples()) {
  const long held = std::min(micro_batch_size, num_samples_);
  samples_.resize(static_cast<std::size_t>(held));
  const auto inputs = static_cast<std::size_t>(held * dataset.inputs_per_sample());
  if (dataset.kind() == SampleKind::kTokens) {
    tokens_.resize(inputs);
  } else {
    features_.resize(inputs);
  }
  targets_.resize(static_cast<std::size_t>(held * dataset.targets_per_sample()));
}

std::size_t Evaluator::buffer_bytes() const {
  return (tokens_.size() + features_.size() + targets_.size()) * sizeof(float);
}

ModelInput Evaluator::read(long first, long count) {
  const std::span<long> samples(samples_.data(), static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  dataset_->read(samples, {tokens_.data(), features_.data(), targets_.data()});
  return {count, tokens_.data(), features_.data(), targets_.data()};
}

Evaluation Evaluator::run(Model& model,
                          const ModelState& state,
                          ActivationStack& stack,
                          const VirtualLayout& layout,
                          Communicator& group,
                          Queue& queue) {
  const auto nothing = [](long) {};
  Pass pass{.queue = queue,
            .stack = stack,
            .weights = state.weights(),
            .gradients = Gradients(state.table(), nullptr),
            .gradients_ready = nothing};
  const long batches = num_micro_batches(num_samples_, micro_batch_size_);
  std::vector<Sums> leaves;
  for (int owned = 0; owned < layout.owned(); ++owned) {
    const IndexRange range = layout.micro_batches(batches, layout.first_owned() + owned);
    Sums sums;
    for (long index = range.begin; index < range.end; ++index) {
      const MicroBatchRange batch = micro_batch_range(num_samples_, micro_batch_size_, index);
      const ModelInput input = read(batch.first_sample, batch.num_samples);
      const long num_targets = batch.num_samples * dataset_->targets_per_sample();
      const LossPart part = model.evaluate(pass, input);
      const auto trained = std::count_if(
          input.targets, input.targets + num_targets, [](std::int32_t id) { return id >= 0; });
      sums = sums + Sums{part.sum, static_cast<double>(trained), static_cast<double>(part.correct)};
    }
    leaves.push_back(sums);
  }
  const Sums own = tree_sum(std::move(leaves));
  const std::array<double, 3> mine{own.loss, own.targets, own.correct};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(mine, all);
  std::vector<Sums> ranks;
  for (std::size_t i = 0; i < all.size(); i += mine.size()) {
    ranks.push_back({all[i], all[i + 1], all[i + 2]});
  }
  const Sums total = tree_sum(std::move(ranks));
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {.loss = total.targets > 0 ? total.loss / total.targets : kNone,
          .accuracy = dataset_->kind() == SampleKind::kImages && total.targets > 0
                          ? total.correct / total.targets
                          : kNone,
          .targets = static_cast<long>(total.targets)};
}

}  // namespace lockstep
