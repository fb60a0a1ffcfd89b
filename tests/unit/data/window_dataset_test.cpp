#include "data/window_dataset.h"

#include <numeric>
#include <vector>

#include "base/error.h"
#include "formats/token_file.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

// A file of the tokens 0, 1, ... count - 1.
std::string make_file(const test::ScratchFolder& folder, long count) {
  std::string path = folder / "tokens.bin";
  TokenFileWriter writer(path, DType::kU16);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  writer.write(tokens);
  writer.close();
  return path;
}

// All targets that count, in the order of the windows.
std::vector<std::int32_t> targets_of(const WindowDataset& data) {
  const auto context = static_cast<std::size_t>(data.inputs_per_sample());
  std::vector<std::int32_t> tokens(context);
  std::vector<std::int32_t> targets(context);
  std::vector<std::int32_t> all;
  for (long window = 0; window < data.num_samples(); ++window) {
    data.read({&window, 1}, {tokens.data(), nullptr, targets.data()});
    for (std::size_t i = 0; i < context; ++i) {
      if (targets[i] >= 0) {
        CHECK(targets[i] == tokens[i] + 1);
        all.push_back(targets[i]);
      }
    }
  }
  return all;
}

}  // namespace

TEST_CASE("windows train every target of a file exactly once, in order") {
  for (const long count : {2L, 5L, 8L, 9L, 10L, 33L}) {
    for (const long context : {1L, 4L, 8L, 40L}) {
      for (const long stride : {1L, 3L, context}) {
        if (stride > context) {
          continue;
        }
        const test::ScratchFolder folder;
        const WindowDataset data({make_file(folder, count)}, context, stride, 100, -1);
        std::vector<std::int32_t> expected(static_cast<std::size_t>(count) - 1);
        std::iota(expected.begin(), expected.end(), 1);
        CAPTURE(count, context, stride);

        CHECK(targets_of(data) == expected);
      }
    }
  }
}

TEST_CASE("a sliding window gives later targets the tokens before them") {
  const test::ScratchFolder folder;
  const WindowDataset data({make_file(folder, 11)}, 4, 2, 100, -1);
  std::vector<std::int32_t> tokens(4);
  std::vector<std::int32_t> targets(4);
  const long second = 1;

  data.read({&second, 1}, {tokens.data(), nullptr, targets.data()});

  CHECK(tokens == std::vector<std::int32_t>{2, 3, 4, 5});
  CHECK(targets == std::vector<std::int32_t>{-1, -1, 5, 6});
}

TEST_CASE("targets that are to be ignored do not count in windows") {
  const test::ScratchFolder folder;
  const WindowDataset data({make_file(folder, 6)}, 3, 3, 100, 4);
  CHECK(targets_of(data) == std::vector<std::int32_t>{1, 2, 3, 5});
}

TEST_CASE("windows refuse a stride that leaves targets out and a file without targets") {
  const test::ScratchFolder folder;
  const std::string path = make_file(folder, 1);
  CHECK_THROWS_AS(WindowDataset({path}, 4, 4, 100, -1), RequestError);
  CHECK_THROWS_AS(WindowDataset({path}, 4, 5, 100, -1), RequestError);
}

}  // namespace lockstep
