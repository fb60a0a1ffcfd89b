#include "data/token_dataset.h"

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

using test::request_error_of;
using test::ScratchFolder;

/// A shard of the ids first, first + 1, ...
void write_shard(const std::string& path, std::int32_t first, long count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  TokenFileWriter writer(path, DType::kU16);
  writer.write(ids);
  writer.close();
}

struct Read {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

Read read_samples(const Dataset& dataset, const std::vector<long>& samples) {
  const std::size_t size = samples.size() * static_cast<std::size_t>(dataset.inputs_per_sample());
  Read read{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
  dataset.read(samples, {read.inputs.data(), nullptr, read.targets.data()});
  return read;
}

}  // namespace

TEST_CASE("100 tokens make 12 samples of 8, each token a target at most once") {
  const ScratchFolder folder;
  write_shard(folder / "tokens", 0, 100);
  const TokenDataset dataset({folder / "tokens"}, 8, 100, -1);

  CHECK(dataset.num_samples() == 12);
  CHECK(dataset.kind() == SampleKind::kTokens);
  CHECK(dataset.targets_per_sample() == 8);
  for (long sample = 0; sample < 12; ++sample) {
    const Read read = read_samples(dataset, {sample});
    for (long i = 0; i < 8; ++i) {
      CHECK(read.inputs[static_cast<std::size_t>(i)] == 8 * sample + i);
      CHECK(read.targets[static_cast<std::size_t>(i)] == 8 * sample + i + 1);
    }
  }
}

TEST_CASE("a shard has floor((n - 1) / T) samples") {
  const ScratchFolder folder;
  for (const auto& [tokens, samples] : {std::pair{9L, 1L}, {16L, 1L}, {17L, 2L}, {24L, 2L}}) {
    write_shard(folder / "tokens", 0, tokens);
    CHECK(TokenDataset({folder / "tokens"}, 8, 0, -1).num_samples() == samples);
  }
}

TEST_CASE("samples of several shards follow one another in the order of their names") {
  const ScratchFolder folder;
  write_shard(folder / "b_10.bin", 1000, 9);  // 2 samples of 4
  write_shard(folder / "b_2.bin", 2000, 4);   // none
  write_shard(folder / "B_3.bin", 3000, 6);   // 1; upper case sorts first
  write_shard(folder / "c.bin", 4000, 5);     // 1
  write_shard(folder / "other", 5000, 100);

  const auto shards = find_shards(folder / "*.bin");
  const TokenDataset dataset(shards, 4, 0, -1);

  CHECK(shards ==
        std::vector<std::string>{
            folder / "B_3.bin", folder / "b_10.bin", folder / "b_2.bin", folder / "c.bin"});
  CHECK(dataset.num_samples() == 4);
  CHECK(read_samples(dataset, {0, 3, 2, 1}).inputs == std::vector<std::int32_t>{3000,
                                                                                3001,
                                                                                3002,
                                                                                3003,
                                                                                4000,
                                                                                4001,
                                                                                4002,
                                                                                4003,
                                                                                1004,
                                                                                1005,
                                                                                1006,
                                                                                1007,
                                                                                1000,
                                                                                1001,
                                                                                1002,
                                                                                1003});
}

TEST_CASE("a file whose name looks like a pattern is that file") {
  const ScratchFolder folder;
  write_shard(folder / "a[1].bin", 0, 9);
  write_shard(folder / "a1.bin", 0, 9);

  CHECK(find_shards(folder / "a[1].bin") == std::vector<std::string>{folder / "a[1].bin"});
}

TEST_CASE("the ignored token is no target, is still an input, and is not counted") {
  const ScratchFolder folder;
  const std::vector<std::int32_t> ids{7, 7, 1, 2, 7, 3, 7, 7, 4};
  TokenFileWriter writer(folder / "tokens", DType::kI32);
  writer.write(ids);
  writer.close();

  const TokenDataset dataset({folder / "tokens"}, 4, 8, 7);
  const Read read = read_samples(dataset, {0, 1});

  CHECK(read.inputs == std::vector<std::int32_t>(ids.begin(), ids.end() - 1));
  CHECK(read.targets == std::vector<std::int32_t>{-1, 1, 2, -1, 3, -1, -1, 4});
  CHECK(dataset.count_targets(std::vector<long>{0}) == 2);
  CHECK(dataset.count_targets(std::vector<long>{1, 0, 1}) == 6);
  CHECK(TokenDataset({folder / "tokens"}, 4, 8, -1).count_targets(std::vector<long>{0, 1}) == 8);
  CHECK(TokenDataset({folder / "tokens"}, 4, 8, 1L << 40U).count_targets(std::vector<long>{1}) ==
        4);
}

TEST_CASE("an id equal to the vocabulary size is found by exactly one share, by its position") {
  const ScratchFolder folder;
  write_shard(folder / "a", 0, 10);
  write_shard(folder / "b", 10, 11);  // ids 10..20; 20 is at position 10
  const TokenDataset dataset(find_shards(folder / "?"), 4, 20, -1);

  for (const long parts : {1, 2, 3, 4, 30}) {
    int refusals = 0;
    long largest = -1;
    for (long part = 0; part < parts; ++part) {
      const std::string message = request_error_of([&] { dataset.check_share(part, parts); });
      if (!message.empty()) {
        ++refusals;
        CHECK_THAT(message,
                   Catch::StartsWith(folder / "b") && Catch::Contains("position 10") &&
                       Catch::Contains("id 20 "));
      }
      largest = std::max(largest, dataset.largest_target(part, parts));
    }
    CHECK(refusals == 1);
    CHECK(largest == 20);
  }
}

TEST_CASE("too few tokens, an empty pattern, a folder and malformed shards are refused by name") {
  const ScratchFolder folder;
  write_shard(folder / "short1", 0, 8);
  write_shard(folder / "short2", 0, 3);
  const auto message = [&](const std::string& pattern) {
    return request_error_of([&] { TokenDataset(find_shards(pattern), 8, 0, -1); });
  };

  CHECK_THAT(message(folder / "short1"),
             Catch::StartsWith(folder / "short1: 8 tokens") && Catch::Contains("at least 9"));
  CHECK_THAT(message(folder / "short*"), Catch::Contains("8 tokens in the longest of 2 shards"));
  CHECK_THAT(message(folder / "none*"), Catch::StartsWith(folder / "none*"));
  CHECK_THAT(message(folder.path()), Catch::Contains("is a folder"));
  const std::string whole = test::read_file(folder / "short1");
  test::write_file(folder / "short2", whole.substr(0, whole.size() - 1));
  CHECK_THAT(message(folder / "short*"),
             Catch::StartsWith(folder / "short2") && Catch::Contains("truncated"));
}

}  // namespace lockstep
