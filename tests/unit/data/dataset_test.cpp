#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "formats/token_file.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "support/scratch_folder.h"

namespace lockstep {
namespace {

using test::request_error_of;
using test::ScratchFolder;

/// `count` images of 1 x 2 pixels (2i, 2i + 1) and labels i % 3.
void write_images(const ScratchFolder& folder, const std::string& part, char count) {
  std::string pixels{0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 1, 0, 0, 0, 2};
  std::string labels{0, 0, 8, 1, 0, 0, 0, count};
  for (char i = 0; i < count; ++i) {
    pixels += static_cast<char>(2 * i);
    pixels += static_cast<char>(2 * i + 1);
    labels += static_cast<char>(i % 3);
  }
  test::write_file(folder / (part + "-images-idx3-ubyte"), pixels);
  test::write_file(folder / (part + "-labels-idx1-ubyte"), labels);
}

struct Images {
  std::vector<float> features;
  std::vector<std::int32_t> labels;
};

Images read_images(const Dataset& dataset, const std::vector<long>& samples) {
  Images images{
      std::vector<float>(samples.size() * static_cast<std::size_t>(dataset.inputs_per_sample())),
      std::vector<std::int32_t>(samples.size())};
  dataset.read(samples, {nullptr, images.features.data(), images.labels.data()});
  return images;
}

DataConfig config_of(const std::string& kind, const std::string& train = "") {
  DataConfig config;
  config.kind = kind;
  config.train = train;
  return config;
}

}  // namespace

TEST_CASE("images are pixels over 255 with their labels, train and t10k apart") {
  const ScratchFolder folder;
  write_images(folder, "train", 5);
  write_images(folder, "t10k", 4);
  const DataConfig config = config_of("images", folder.path());

  const auto train = make_dataset(config, DataPart::kTrain, {}, 1);
  const auto test = make_dataset(config, DataPart::kValidation, {}, 1);

  CHECK(train->num_samples() == 5);
  CHECK(test->num_samples() == 4);
  CHECK(train->kind() == SampleKind::kImages);
  CHECK(train->inputs_per_sample() == 2);
  CHECK(train->targets_per_sample() == 1);
  CHECK(train->num_classes() == 3);
  CHECK(train->largest_target(0, 5) == 0);
  CHECK(train->largest_target(0, 1) == 2);
  const Images images = read_images(*train, {4, 1});
  CHECK(images.features ==
        std::vector<float>{8.0F / 255.0F, 9.0F / 255.0F, 2.0F / 255.0F, 3.0F / 255.0F});
  CHECK(images.labels == std::vector<std::int32_t>{1, 1});
}

TEST_CASE("an ignored label is written as -1, not counted, and may lie beyond the classes") {
  const ScratchFolder folder;
  write_images(folder, "train", 5);
  DataConfig config = config_of("images", folder.path());
  config.ignore_token = 2;
  DatasetShape shape;
  shape.num_classes = 2;

  const auto dataset = make_dataset(config, DataPart::kTrain, shape, 1);

  CHECK(read_images(*dataset, {1, 2}).labels == std::vector<std::int32_t>{1, -1});
  CHECK(dataset->count_targets(std::vector<long>{0, 1, 2, 3}) == 3);
}

TEST_CASE("images that do not fit the model are refused with both sides") {
  const ScratchFolder folder;
  write_images(folder, "train", 5);
  const DataConfig config = config_of("images", folder.path());
  DatasetShape shape;
  shape.num_classes = 2;
  CHECK_THAT(request_error_of([&] { make_dataset(config, DataPart::kTrain, shape, 1); }),
             Catch::Contains("label 2 at position 2") && Catch::Contains("classes 2"));

  shape = {};
  shape.features = 784;
  CHECK_THAT(request_error_of([&] { make_dataset(config, DataPart::kTrain, shape, 1); }),
             Catch::Contains("1 x 2 = 2 pixels") && Catch::Contains("784"));

  write_images(folder, "train", 0);
  CHECK_THAT(request_error_of([&] { make_dataset(config, DataPart::kTrain, {}, 1); }),
             Catch::StartsWith(folder.path()) && Catch::Contains("no image"));
}

TEST_CASE("synthetic images are a function of seed and sample alone, uniform below 1") {
  DatasetShape shape;
  shape.features = 7;
  shape.num_classes = 10;
  shape.num_synthetic_samples = 3000;
  const DataConfig config = config_of("synthetic");
  const auto dataset = make_dataset(config, DataPart::kTrain, shape, 5);
  std::vector<long> all;
  for (long i = 0; i < 3000; ++i) {
    all.push_back(i);
  }
  const Images images = read_images(*dataset, all);

  shape.num_synthetic_samples = 20;
  const auto shorter = make_dataset(config, DataPart::kTrain, shape, 5);
  const Images few = read_images(*shorter, {3, 19});
  CHECK(std::equal(few.features.begin(), few.features.begin() + 7, images.features.begin() + 21));
  CHECK(few.labels == std::vector<std::int32_t>{images.labels[3], images.labels[19]});
  const auto validation = make_dataset(config, DataPart::kValidation, shape, 5);
  CHECK(read_images(*validation, {3, 19}).features != few.features);
  const auto other_seed = make_dataset(config, DataPart::kTrain, shape, 6);
  CHECK(read_images(*other_seed, {3, 19}).features != few.features);

  double sum = 0;
  for (const float value : images.features) {
    CHECK((value >= 0.0F && value < 1.0F));
    sum += value;
  }
  // Five standard deviations of the mean of uniform numbers, whose variance is 1/12.
  const auto count = static_cast<double>(images.features.size());
  CHECK(std::abs(sum / count - 0.5) < 5 * std::sqrt(1.0 / 12.0 / count));
  std::vector<int> labels(10);
  for (const std::int32_t label : images.labels) {
    ++labels.at(static_cast<std::size_t>(label));
  }
  // Five standard deviations of a binomial count with a share of 1/10.
  for (const int label_count : labels) {
    CHECK(std::abs(label_count - 300) < 5 * std::sqrt(3000 * 0.1 * 0.9));
  }
}

TEST_CASE("synthetic tokens are below the vocabulary, targets one later") {
  DatasetShape shape;
  shape.seq_length = 9;
  shape.vocab_size = 3;
  shape.num_synthetic_samples = 50;
  DataConfig config = config_of("synthetic");
  config.ignore_token = 2;
  const auto dataset = make_dataset(config, DataPart::kTrain, shape, 5);
  config.ignore_token = -1;
  const auto unmasked = make_dataset(config, DataPart::kTrain, shape, 5);

  long trained = 0;
  for (long sample = 0; sample < 50; ++sample) {
    std::vector<std::int32_t> inputs(9);
    std::vector<std::int32_t> targets(9);
    std::vector<std::int32_t> masked(9);
    unmasked->read(std::span(&sample, 1), {inputs.data(), nullptr, targets.data()});
    dataset->read(std::span(&sample, 1), {inputs.data(), nullptr, masked.data()});
    for (std::size_t i = 0; i < 9; ++i) {
      CHECK((targets[i] >= 0 && targets[i] < 3));
      CHECK((i == 8 || targets[i] == inputs[i + 1]));
      CHECK(masked[i] == (targets[i] == 2 ? -1 : targets[i]));
      trained += masked[i] >= 0 ? 1 : 0;
    }
  }
  std::vector<long> all(50);
  std::iota(all.begin(), all.end(), 0L);
  CHECK(dataset->count_targets(all) == trained);
  CHECK(unmasked->count_targets(all) == 450);
}

TEST_CASE("token data is opened by its key, train and validation apart") {
  const ScratchFolder folder;
  for (const auto& [name, count] : {std::pair{"train", 9}, {"val", 5}}) {
    TokenFileWriter writer(folder / name, DType::kU16);
    writer.write(std::vector<std::int32_t>(static_cast<std::size_t>(count), 1));
    writer.close();
  }
  DataConfig config = config_of("tokens", folder / "tra*");
  config.validation = folder / "val";
  DatasetShape shape;
  shape.seq_length = 4;

  CHECK(make_dataset(config, DataPart::kTrain, shape, 1)->num_samples() == 2);
  CHECK(make_dataset(config, DataPart::kValidation, shape, 1)->num_samples() == 1);
}

TEST_CASE("a request without data, of an unknown kind or without sizes is refused by its key") {
  const auto message = [](const DataConfig& config, DataPart part) {
    return request_error_of([&] { make_dataset(config, part, {}, 1); });
  };
  CHECK_THAT(message(config_of("tokens"), DataPart::kTrain),
             Catch::Contains("data.train is empty"));
  CHECK_THAT(message(config_of("images"), DataPart::kValidation),
             Catch::Contains("data.train is empty"));
  CHECK_THAT(message(config_of("tokens", "x"), DataPart::kValidation),
             Catch::Contains("data.validation is empty"));
  CHECK_THAT(message(config_of("video"), DataPart::kTrain), Catch::Contains("'video' is unknown"));
  CHECK_THAT(message(config_of("synthetic"), DataPart::kTrain),
             Catch::Contains("model.layer_sizes"));
}

}  // namespace lockstep
