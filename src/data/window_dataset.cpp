#include "data/window_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {

WindowDataset::WindowDataset(const std::vector<std::string>& shards,
                             long context,
                             long stride,
                             long vocab_size,
                             std::int64_t ignore_token)
    : WindowDataset(open(shards, context, stride, vocab_size, ignore_token), stride) {}

WindowDataset::WindowDataset(Shards shards, long stride)
    : Dataset(shards.info), shards_(std::move(shards)), stride_(stride) {}

WindowDataset::Shards WindowDataset::open(const std::vector<std::string>& paths,
                                          long context,
                                          long stride,
                                          long vocab_size,
                                          std::int64_t ignore_token) {
  if (stride < 1 || stride > context) {
    throw_request_error(
        "evaluate.stride = {}: valid are 1 to the context, {} (0: the context)", stride, context);
  }
  Shards shards;
  shards.first_windows.push_back(0);
  for (const std::string& path : paths) {
    const TokenFile& file = shards.files.emplace_back(path);
    const long targets = file.num_tokens() - 1;
    if (targets < 1) {
      throw_request_error(
          "{}: {} tokens; at least 2 are needed for a target", path, file.num_tokens());
    }
    const long windows = targets <= context ? 1 : 1 + ceil_div(targets - context, stride);
    shards.first_windows.push_back(shards.first_windows.back() + windows);
  }
  shards.info = {.kind = SampleKind::kTokens,
                 .num_samples = shards.first_windows.back(),
                 .inputs_per_sample = context,
                 .targets_per_sample = context,
                 .num_classes = vocab_size,
                 .ignore_token = ignore_token};
  return shards;
}

void WindowDataset::read(std::span<const long> samples, SampleBuffers out) const {
  const long context = inputs_per_sample();
  for (const long sample : samples) {
    const auto after =
        std::upper_bound(shards_.first_windows.begin(), shards_.first_windows.end(), sample);
    const auto shard = static_cast<std::size_t>(after - shards_.first_windows.begin() - 1);
    const TokenFile& file = shards_.files[shard];
    const long window = sample - shards_.first_windows[shard];
    const long begin = window * stride_;
    const long count = std::min(context, file.num_tokens() - 1 - begin);
    file.read(begin, count, out.tokens);
    file.read(begin + 1, count, out.targets);
    std::fill(out.tokens + count, out.tokens + context, 0);
    std::fill(out.targets + count, out.targets + context, kIgnoredTarget);
    if (window > 0) {
      std::fill(out.targets, out.targets + (context - stride_), kIgnoredTarget);
    }
    if (info().ignore_token >= 0) {
      const auto ignored = static_cast<std::int32_t>(info().ignore_token);
      std::replace(out.targets, out.targets + count, ignored, kIgnoredTarget);
    }
    out.tokens += context;
    out.targets += context;
  }
}

void WindowDataset::check_share(long part, long parts) const {
  for (const TokenFile& file : shards_.files) {
    const IndexRange range = part_of(file.num_tokens(), parts, part);
    file.check_ids(num_classes(), range.begin, range.end);
  }
}

long WindowDataset::largest_target(long part, long parts) const {
  long largest = -1;
  for (const TokenFile& file : shards_.files) {
    const IndexRange range = part_of(file.num_tokens(), parts, part);
    largest = std::max(largest, file.largest_id(range.begin, range.end));
  }
  return largest;
}

long WindowDataset::count_ignored(std::span<const long> samples) const {
  const auto context = static_cast<std::size_t>(inputs_per_sample());
  std::vector<std::int32_t> tokens(context);
  std::vector<std::int32_t> targets(context);
  long ignored = 0;
  for (const long sample : samples) {
    read({&sample, 1}, {tokens.data(), nullptr, targets.data()});
    ignored += std::count(targets.begin(), targets.end(), kIgnoredTarget);
  }
  return ignored;
}

}  // namespace lockstep
