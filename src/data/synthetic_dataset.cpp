#include "data/synthetic_dataset.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/integers.h"
#include "base/philox.h"

namespace lockstep {
namespace {

constexpr long kWords = 4;  // 32-bit words of a Philox block

enum class Field : std::uint32_t { kPixels = 1, kLabel = 2, kIds = 3 };

/// Word `i` of block `b` belongs to element 4b + i. A RandomStream gives one word a call: four
/// times the work where all elements are wanted.
std::array<std::uint32_t, kWords> random_block(std::uint64_t seed,
                                               Field field,
                                               long sample,
                                               long block) {
  const auto number = static_cast<std::uint64_t>(sample);
  return philox4x32({static_cast<std::uint32_t>(block),
                     static_cast<std::uint32_t>(number),
                     static_cast<std::uint32_t>(number >> 32U),
                     static_cast<std::uint32_t>(RandomPurpose::kSynthetic) << 8U |
                         static_cast<std::uint32_t>(field)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
}

/// Uniform in [0, count) up to count / 2^32.
std::int32_t scale(std::uint32_t bits, long count) {
  return static_cast<std::int32_t>((bits * static_cast<std::uint64_t>(count)) >> 32U);
}

float to_uniform(std::uint32_t bits) {
  return static_cast<float>(bits >> 8U) * 0x1p-24F;
}

DatasetInfo checked_info(SampleKind kind,
                         const SyntheticOptions& options,
                         long inputs,
                         long classes) {
  const auto bounded = [](const char* what, long value, long most) {
    if (value <= 0 || value > most) {
      throw_request_error("synthetic data: {} = {}, expected 1 to {}", what, value, most);
    }
  };
  constexpr long kMostInputs = 1L << 31U;
  bounded("samples", options.num_samples, 1L << 40U);
  bounded(kind == SampleKind::kImages ? "features" : "sequence length", inputs, kMostInputs);
  bounded(kind == SampleKind::kImages ? "classes" : "vocabulary size", classes, 1L << 31U);
  return {kind,
          options.num_samples,
          inputs,
          kind == SampleKind::kImages ? 1 : inputs,
          classes,
          options.ignore_token};
}

}  // namespace

SyntheticImageDataset::SyntheticImageDataset(const SyntheticOptions& options,
                                             long features,
                                             long num_classes)
    : Dataset(checked_info(SampleKind::kImages, options, features, num_classes)) {
  features_.resize(static_cast<std::size_t>(options.num_samples * features));
  labels_.resize(static_cast<std::size_t>(options.num_samples));
  float* out = features_.data();
  for (long i = 0; i < options.num_samples; ++i) {
    const long sample = options.first_sample + i;
    for (long first = 0; first < features; first += kWords) {
      const auto words = random_block(options.seed, Field::kPixels, sample, first / kWords);
      const long count = std::min(kWords, features - first);
      out = std::transform(words.begin(), words.begin() + count, out, to_uniform);
    }
    labels_[static_cast<std::size_t>(i)] =
        scale(random_block(options.seed, Field::kLabel, sample, 0)[0], num_classes);
  }
}

void SyntheticImageDataset::read(std::span<const long> samples, SampleBuffers out) const {
  const long features = inputs_per_sample();
  float* target = out.features;
  std::int32_t* label = out.targets;
  for (const long sample : samples) {
    LOCKSTEP_CHECK(sample >= 0 && sample < num_samples());
    target = std::copy_n(features_.data() + sample * features, features, target);
    const std::int32_t value = labels_[static_cast<std::size_t>(sample)];
    *label++ = value == info().ignore_token ? kIgnoredTarget : value;
  }
}

long SyntheticImageDataset::largest_target(long part, long parts) const {
  LOCKSTEP_CHECK(part >= 0 && part < parts);
  return part_of(num_samples(), parts, part).size() == 0 ? -1 : num_classes() - 1;
}

long SyntheticImageDataset::count_ignored(std::span<const long> samples) const {
  return std::count_if(samples.begin(), samples.end(), [this](long sample) {
    return labels_[static_cast<std::size_t>(sample)] == info().ignore_token;
  });
}

SyntheticTokenDataset::SyntheticTokenDataset(const SyntheticOptions& options,
                                             long seq_length,
                                             long vocab_size)
    : Dataset(checked_info(SampleKind::kTokens, options, seq_length, vocab_size)),
      options_(options) {}

/// Calls visit(element, id) for the seq_length + 1 ids of a sample.
template <typename Visit>
void SyntheticTokenDataset::visit_ids(long sample, Visit visit) const {
  LOCKSTEP_CHECK(sample >= 0 && sample < num_samples());
  const long count = inputs_per_sample() + 1;
  for (long first = 0; first < count; first += kWords) {
    const auto words =
        random_block(options_.seed, Field::kIds, options_.first_sample + sample, first / kWords);
    const long end = std::min(first + kWords, count);
    for (long element = first; element < end; ++element) {
      visit(element, scale(words[static_cast<std::size_t>(element - first)], num_classes()));
    }
  }
}

void SyntheticTokenDataset::read(std::span<const long> samples, SampleBuffers out) const {
  const long length = inputs_per_sample();
  std::int32_t* inputs = out.tokens;
  std::int32_t* targets = out.targets;
  for (const long sample : samples) {
    visit_ids(sample, [&](long element, std::int32_t id) {
      if (element < length) {
        inputs[element] = id;
      }
      if (element > 0) {
        targets[element - 1] = id == info().ignore_token ? kIgnoredTarget : id;
      }
    });
    inputs += length;
    targets += length;
  }
}

long SyntheticTokenDataset::largest_target(long part, long parts) const {
  LOCKSTEP_CHECK(part >= 0 && part < parts);
  return part_of(num_samples(), parts, part).size() == 0 ? -1 : num_classes() - 1;
}

long SyntheticTokenDataset::count_ignored(std::span<const long> samples) const {
  long count = 0;
  for (const long sample : samples) {
    visit_ids(sample, [&](long element, std::int32_t id) {
      count += element > 0 && id == info().ignore_token ? 1 : 0;
    });
  }
  return count;
}

}  // namespace lockstep
