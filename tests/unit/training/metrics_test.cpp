#include "training/metrics.h"

#include <limits>

#include "base/error.h"
#include "support/catch.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string eval_line(long step) {
  return "{\"kind\":\"eval\",\"step\":" + std::to_string(step) + ",\"loss\":1,\"perplexity\":2}\n";
}

void write_evaluations(const std::string& path, long first, long last) {
  MetricsWriter writer(path);
  for (long step = first; step <= last; ++step) {
    writer.write(EvalRecord{step, 1.0, 2.0});
  }
}

}  // namespace

TEST_CASE("a train line has the keys of the interface in their order") {
  const test::ScratchFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl");

  TrainRecord record{10, 0.03, 320, 81920, 0.1, 2.0, 1e-3, 1.5, 54613.25, 0.25, 1048576};
  record.work.operations = 12345678;
  record.work.groups[0].kinds[0] = {1.5, 8192};
  record.work.groups[0].kinds[3] = {2, 0};
  record.work.groups[3].kinds[4] = {1, 48.4};

  writer.write(record);

  CHECK(test::read_file(folder / "metrics.jsonl") ==
        "{\"kind\":\"train\",\"step\":10,\"epoch\":0.03,\"samples\":320,\"tokens\":81920,"
        "\"loss\":0.10000000000000001,\"grad_norm\":2,\"lr\":0.001,\"seconds\":1.5,"
        "\"tokens_per_second\":54613.25,\"mfu\":0.25,\"memory_bytes\":1048576,"
        "\"bytes_sent\":8240,\"communication\":{\"data\":{\"all_reduce\":{\"calls\":1.5,\"bytes\":"
        "8192},"
        "\"all_gather\":{\"calls\":2,\"bytes\":0}},\"world\":{\"values\":{\"calls\":1,\"bytes\":48}"
        "}},"
        "\"operations\":12345678}\n");
}

TEST_CASE("the loss of a skipped step and an unknown utilisation are null") {
  const test::ScratchFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl");

  writer.write(TrainRecord{1, 0, 0, 0, kNan, 1.0, 1.0, 1.0, 1.0, kNan, 0});

  CHECK_THAT(test::read_file(folder / "metrics.jsonl"),
             Catch::Contains("\"loss\":null,\"grad_norm\":1,") &&
                 Catch::Contains(
                     "\"mfu\":null,\"memory_bytes\":0,\"bytes_sent\":0,\"communication\":{},"));
}

TEST_CASE("an eval line has an accuracy for classifications only") {
  const test::ScratchFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl");

  writer.write(EvalRecord{100, 1.0, 2.5});
  writer.write(EvalRecord{200, 1.0, 2.5, 0.75});

  CHECK(test::read_file(folder / "metrics.jsonl") ==
        "{\"kind\":\"eval\",\"step\":100,\"loss\":1,\"perplexity\":2.5}\n"
        "{\"kind\":\"eval\",\"step\":200,\"loss\":1,\"perplexity\":2.5,\"accuracy\":0.75}\n");
}

TEST_CASE("the largest line fits its buffer") {
  const test::ScratchFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl");
  const double wide = -std::numeric_limits<double>::denorm_min() * 3;
  const long low = std::numeric_limits<long>::min();

  TrainRecord record{low, wide, low, low, wide, wide, wide, wide, wide, wide, low};
  record.work.operations = static_cast<double>(low);
  for (GroupWork& group : record.work.groups) {
    group.kinds.fill({4 / 3.0 * 1e-300, static_cast<double>(low) / 32});
  }

  CHECK_NOTHROW(writer.write(record));
}

TEST_CASE("every step appears once however often a run is stopped and resumed") {
  const test::ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  write_evaluations(path, 1, 5);
  for (const long checkpoint : {3L, 2L, 4L}) {  // each start dies with a line half written
    MetricsWriter(path).truncate_after(checkpoint);
    write_evaluations(path, checkpoint + 1, 5);
    test::write_file(path, test::read_file(path) + "{\"kind\":\"eval\",\"st");
  }

  MetricsWriter(path).truncate_after(5);

  CHECK(test::read_file(path) ==
        eval_line(1) + eval_line(2) + eval_line(3) + eval_line(4) + eval_line(5));
}

TEST_CASE("later steps are removed wherever they stand, and writing goes on at the end") {
  const test::ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  test::write_file(path, eval_line(1) + eval_line(7) + eval_line(2) + eval_line(8));
  MetricsWriter writer(path);

  writer.truncate_after(2);
  writer.write(EvalRecord{3, 1.0, 2.0});

  CHECK(test::read_file(path) == eval_line(1) + eval_line(2) + eval_line(3));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a new run in an old folder starts with an empty file") {
  const test::ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  write_evaluations(path, 1, 3);

  MetricsWriter(path).truncate_after(0);

  CHECK(test::read_file(path).empty());
}

TEST_CASE("a file that holds something else is refused with its line and left as it is") {
  const test::ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  for (const std::string bad : {"notes\n", "{\"step\":1.5}\n", "[1]\n", "{}\n", "\n"}) {
    test::write_file(path, eval_line(9) + bad);
    MetricsWriter writer(path);

    CHECK_THROWS_AS(writer.truncate_after(1), RequestError);
    CHECK_THROWS_WITH(writer.truncate_after(1), Catch::Contains("metrics.jsonl:2: "));
    CHECK(test::read_file(path) == eval_line(9) + bad);
  }
}

TEST_CASE("lines are due at the first, every interval-th and the last step") {
  std::vector<long> due;
  for (long step = 1; step <= 25; ++step) {
    if (is_logged_step(step, 10, 25)) {
      due.push_back(step);
    }
  }
  CHECK((due == std::vector<long>{1, 10, 20, 25}));
  CHECK_FALSE(is_logged_step(10, 0, 25));
}

TEST_CASE("records become scalars, without those that do not apply") {
  const test::ScratchFolder folder;
  TensorBoardWriter writer(folder.path(), 1);

  write_scalars(writer, TrainRecord{1, 0, 0, 0, 1.0, 1.0, 1.0, 1.0, 1.0, kNan, 0});
  write_scalars(writer, EvalRecord{1, 1.0, 2.0});
  const std::string without = test::read_file(writer.path());
  write_scalars(writer, TrainRecord{2, 0, 0, 0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0});
  write_scalars(writer, EvalRecord{2, 1.0, 2.0, 0.5});
  const std::string with = test::read_file(writer.path());

  CHECK_THAT(without,
             Catch::Contains("train/loss") && Catch::Contains("train/memory_bytes") &&
                 Catch::Contains("train/bytes_sent") && Catch::Contains("eval/perplexity"));
  CHECK_THAT(without, !Catch::Contains("train/mfu") && !Catch::Contains("eval/accuracy"));
  CHECK_THAT(with, Catch::Contains("train/mfu") && Catch::Contains("eval/accuracy"));
}

}  // namespace lockstep
