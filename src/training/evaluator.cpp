#include "training/evaluator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/aligned_tree.h"
#include "base/integers.h"
#include "data/sample_order.h"
#include "parallel/pipeline_plan.h"

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
  if (dataset.kind() == SampleKind::kImages) {
    confusion_.resize(static_cast<std::size_t>(dataset.num_classes() * dataset.num_classes()));
  }
}

std::size_t Evaluator::buffer_bytes() const {
  return (tokens_.size() + features_.size() + targets_.size()) * sizeof(float);
}

std::size_t Evaluator::planned_bytes(const DatasetInfo& dataset,
                                     long micro_batch_size,
                                     long max_samples) {
  const long samples =
      max_samples > 0 ? std::min(max_samples, dataset.num_samples) : dataset.num_samples;
  const long numbers = dataset.inputs_per_sample + dataset.targets_per_sample;
  return static_cast<std::size_t>(std::min(micro_batch_size, samples) * numbers) * sizeof(float);
}

ModelInput Evaluator::read(long first, long count) {
  const std::span<long> samples(samples_.data(), static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  dataset_->read(samples, {tokens_.data(), features_.data(), targets_.data()});
  return {count, tokens_.data(), features_.data(), targets_.data()};
}

void Evaluator::count_predictions(const ModelInput& input, const std::int32_t* predictions) {
  const long classes = dataset_->num_classes();
  for (long i = 0; i < input.batch; ++i) {
    if (input.targets[i] >= 0) {
      confusion_[static_cast<std::size_t>(input.targets[i] * classes + predictions[i])] += 1;
    }
  }
}

Evaluator::Sums Evaluator::run_leaf(StageRunner& runner, IndexRange range) {
  Sums sums;
  for (long index = range.begin; index < range.end; ++index) {
    const MicroBatchRange batch = micro_batch_range(num_samples_, micro_batch_size_, index);
    const ModelInput input = read(batch.first_sample, batch.num_samples);
    const long num_targets = batch.num_samples * dataset_->targets_per_sample();
    const StageRunner::LossPart part = runner.evaluate(next_micro_batch_++, input);
    const auto trained = std::count_if(
        input.targets, input.targets + num_targets, [](std::int32_t id) { return id >= 0; });
    sums = sums + Sums{part.sum, static_cast<double>(trained)};
    if (part.predictions != nullptr) {
      count_predictions(input, part.predictions);
    }
  }
  return sums;
}

std::vector<std::vector<long>> Evaluator::gather_confusion(Communicator& group) const {
  const auto classes = static_cast<std::size_t>(dataset_->num_classes());
  std::vector<std::vector<long>> total(classes, std::vector<long>(classes));
  // Counts are whole numbers, so that any order of adding gives the same. A row at a time fits what
  // all_gather takes, in pieces.
  constexpr std::size_t kPiece = Communicator::kMaxValues;
  std::vector<double> all(kPiece * static_cast<std::size_t>(group.size()));
  for (std::size_t begin = 0; begin < confusion_.size(); begin += kPiece) {
    const std::size_t count = std::min(kPiece, confusion_.size() - begin);
    const std::span<double> gathered(all.data(), count * static_cast<std::size_t>(group.size()));
    group.all_gather(std::span<const double>(confusion_).subspan(begin, count), gathered);
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      const std::size_t cell = begin + i % count;
      total[cell / classes][cell % classes] += static_cast<long>(gathered[i]);
    }
  }
  return total;
}

Evaluation Evaluator::run(StageRunner& runner, const VirtualLayout& layout, const Mesh& mesh) {
  std::fill(confusion_.begin(), confusion_.end(), 0.0);
  next_micro_batch_ = 0;
  const long batches = num_micro_batches(num_samples_, micro_batch_size_);
  std::vector<Sums> leaves;
  leaves.reserve(static_cast<std::size_t>(layout.owned()));
  for (int owned = 0; owned < layout.owned(); ++owned) {
    leaves.push_back(run_leaf(runner, layout.micro_batches(batches, layout.first_owned() + owned)));
  }
  // Ranks with fewer micro-batches take part in gathering weights.
  const auto nothing = [](int) {};
  for (; next_micro_batch_ < most_micro_batches(layout, batches); ++next_micro_batch_) {
    for (int chunk = 0; chunk < runner.num_chunks(); ++chunk) {
      runner.skip(chunk, Model::PassKind::kEvaluate, nothing);
    }
  }
  runner.finish();
  const Sums own = tree_sum(std::move(leaves));
  // The last stage has the losses.
  Communicator& pipeline = mesh.pipeline();
  std::array<double, 2> mine{own.loss, own.targets};
  std::vector<double> stages(mine.size() * static_cast<std::size_t>(pipeline.size()));
  pipeline.all_gather(mine, stages);
  mine[0] = stages[stages.size() - mine.size()];
  Communicator& data_group = mesh.data();
  std::vector<double> all(mine.size() * static_cast<std::size_t>(data_group.size()));
  data_group.all_gather(mine, all);
  std::vector<Sums> ranks;
  for (std::size_t i = 0; i < all.size(); i += mine.size()) {
    ranks.push_back({all[i], all[i + 1]});
  }
  const Sums total = tree_sum(std::move(ranks));
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Evaluation result{.loss = total.targets > 0 ? total.loss / total.targets : kNone,
                    .accuracy = kNone,
                    .targets = static_cast<long>(total.targets),
                    .confusion = {}};
  if (!confusion_.empty()) {
    result.confusion = gather_confusion(data_group);
    long correct = 0;
    for (std::size_t label = 0; label < result.confusion.size(); ++label) {
      correct += result.confusion[label][label];
    }
    result.accuracy = total.targets > 0 ? static_cast<double>(correct) / total.targets : kNone;
  }
  return result;
}

}  // namespace lockstep
