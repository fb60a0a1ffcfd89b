#include "data/token_dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <glob.h>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

constexpr long kLargestVocabulary = 1L << 31U;

DatasetInfo token_info(long num_samples,
                       long seq_length,
                       long vocab_size,
                       std::int64_t ignore_token) {
  return {SampleKind::kTokens, num_samples, seq_length, seq_length, vocab_size, ignore_token};
}

}  // namespace

std::vector<std::string> find_shards(const std::string& pattern) {
  std::error_code ignored;
  if (std::filesystem::exists(pattern, ignored)) {
    return {pattern};
  }
  glob_t matches{};
  const int status = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches);
  std::vector<std::string> shards;
  if (status == 0) {
    shards.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  }
  ::globfree(&matches);
  if (shards.empty()) {
    throw_request_error("{}: no such file, and nothing matches it as a pattern", pattern);
  }
  // glob() would sort by the locale, which may differ between hosts.
  std::sort(shards.begin(), shards.end());
  return shards;
}

TokenDataset::TokenDataset(const std::vector<std::string>& shards,
                           long seq_length,
                           long vocab_size,
                           std::int64_t ignore_token)
    : TokenDataset(open_shards(shards, seq_length),
                   token_info(0, seq_length, vocab_size, ignore_token)) {}

TokenDataset::TokenDataset(Shards shards, const DatasetInfo& info)
    : Dataset(token_info(shards.first_samples.back(),
                         info.inputs_per_sample,
                         info.num_classes,
                         info.ignore_token)),
      shards_(std::move(shards)) {}

TokenDataset::Shards TokenDataset::open_shards(const std::vector<std::string>& paths,
                                               long seq_length) {
  LOCKSTEP_CHECK(!paths.empty() && seq_length > 0);
  Shards shards;
  long longest = 0;
  shards.first_samples.push_back(0);
  for (const std::string& path : paths) {
    const TokenFile& file = shards.files.emplace_back(path);
    shards.first_samples.push_back(shards.first_samples.back() +
                                   (file.num_tokens() - 1) / seq_length);
    shards.num_tokens += file.num_tokens();
    longest = std::max(longest, file.num_tokens());
  }
  if (shards.first_samples.back() == 0) {
    throw_request_error(
        "{}: {} tokens{} make no sample: a sequence length of {} takes at least {}",
        paths.front(),
        longest,
        paths.size() > 1 ? fmt::format(" in the longest of {} shards", paths.size()) : "",
        seq_length,
        seq_length + 1);
  }
  return shards;
}

TokenDataset::Place TokenDataset::place_of(long sample) const {
  LOCKSTEP_CHECK(sample >= 0 && sample < num_samples());
  const auto& first = shards_.first_samples;
  const auto next = std::upper_bound(first.begin(), first.end(), sample);
  const auto shard = next - first.begin() - 1;
  const auto index = static_cast<std::size_t>(shard);
  return {&shards_.files[index], (sample - first[index]) * inputs_per_sample()};
}

void TokenDataset::read(std::span<const long> samples, SampleBuffers out) const {
  const long length = inputs_per_sample();
  const auto ignored = info().ignore_token;
  std::int32_t* inputs = out.tokens;
  std::int32_t* targets = out.targets;
  for (const long sample : samples) {
    const auto [file, position] = place_of(sample);
    file->read(position, length, inputs);
    file->read(position + 1, length, targets);
    if (ignored >= 0) {
      std::replace_if(
          targets, targets + length, [ignored](auto id) { return id == ignored; }, kIgnoredTarget);
    }
    inputs += length;
    targets += length;
  }
}

long TokenDataset::count_ignored(std::span<const long> samples) const {
  if (info().ignore_token >= kLargestVocabulary) {
    return 0;
  }
  const auto ignored = static_cast<std::int32_t>(info().ignore_token);
  long count = 0;
  for (const long sample : samples) {
    const auto [file, position] = place_of(sample);
    count += file->count_of(ignored, position + 1, targets_per_sample());
  }
  return count;
}

template <typename Visit>
void TokenDataset::visit_share(long part, long parts, Visit visit) const {
  LOCKSTEP_CHECK(part >= 0 && part < parts);
  const IndexRange share = part_of(shards_.num_tokens, parts, part);
  long first = 0;
  for (const TokenFile& file : shards_.files) {
    const long begin = std::clamp(share.begin - first, 0L, file.num_tokens());
    const long end = std::clamp(share.end - first, 0L, file.num_tokens());
    if (begin < end) {
      visit(file, begin, end);
    }
    first += file.num_tokens();
  }
}

void TokenDataset::check_share(long part, long parts) const {
  const long limit =
      num_classes() > 0 ? std::min(num_classes(), kLargestVocabulary) : kLargestVocabulary;
  visit_share(part, parts, [limit](const TokenFile& file, long begin, long end) {
    file.check_ids(limit, begin, end);
  });
}

long TokenDataset::largest_target(long part, long parts) const {
  long result = -1;
  visit_share(part, parts, [&result](const TokenFile& file, long begin, long end) {
    result = std::max(result, file.largest_id(begin, end));
  });
  return result;
}

}  // namespace lockstep
