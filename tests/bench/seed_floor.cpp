// The training of configs/seed-classifier.toml as a plain loop in one process on one thread: what is left
// when there are no ranks, no layers and no checks. Prints seconds, steps and the last loss as JSON.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include <cblas.h>
#include <spdlog/fmt/fmt.h>

namespace {

constexpr int kSamples = 10'000;
constexpr int kInputs = 784;
constexpr int kClasses = 10;
constexpr int kBatch = 64;
constexpr float kLearningRate = 0.01F;

struct Data {
  std::vector<float> images;
  std::vector<int> labels;
};

struct Model {
  std::vector<float> weight;  // [kClasses x kInputs]
  std::vector<float> bias;
};

struct Batch {
  std::vector<float> images = std::vector<float>(std::size_t{kBatch} * kInputs);
  std::vector<int> labels = std::vector<int>(kBatch);
  std::vector<float> logits = std::vector<float>(std::size_t{kBatch} * kClasses);
  int size = 0;
};

Data make_data(std::mt19937& random) {
  std::uniform_real_distribution<float> pixel(0, 1);
  std::uniform_int_distribution<int> label(0, kClasses - 1);
  Data data;
  data.images.resize(std::size_t{kSamples} * kInputs);
  data.labels.resize(kSamples);
  std::generate(data.images.begin(), data.images.end(), [&] { return pixel(random); });
  std::generate(data.labels.begin(), data.labels.end(), [&] { return label(random); });
  return data;
}

Model make_model(std::mt19937& random) {
  const float bound = 1 / std::sqrt(static_cast<float>(kInputs));
  std::uniform_real_distribution<float> uniform(-bound, bound);
  Model model{std::vector<float>(std::size_t{kClasses} * kInputs), std::vector<float>(kClasses)};
  std::generate(model.weight.begin(), model.weight.end(), [&] { return uniform(random); });
  std::generate(model.bias.begin(), model.bias.end(), [&] { return uniform(random); });
  return model;
}

void gather(const Data& data, const std::vector<int>& order, int first, Batch& batch) {
  batch.size = std::min(kBatch, kSamples - first);
  for (int row = 0; row < batch.size; ++row) {
    const int sample = order.data()[first + row];
    std::copy_n(data.images.data() + static_cast<long>(sample) * kInputs,
                kInputs,
                batch.images.data() + static_cast<long>(row) * kInputs);
    batch.labels[static_cast<std::size_t>(row)] = data.labels[static_cast<std::size_t>(sample)];
  }
}

// Replaces the logits by the gradient of the mean loss; returns that loss.
double softmax_loss(Batch& batch) {
  double loss = 0;
  for (int row = 0; row < batch.size; ++row) {
    float* logits = batch.logits.data() + static_cast<long>(row) * kClasses;
    const int label = batch.labels[static_cast<std::size_t>(row)];
    const float largest = *std::max_element(logits, logits + kClasses);
    const float target = logits[label];
    float sum = 0;
    for (int i = 0; i < kClasses; ++i) {
      logits[i] = std::exp(logits[i] - largest);
      sum += logits[i];
    }
    loss += std::log(sum) + largest - target;
    const float scale = 1 / (sum * static_cast<float>(batch.size));
    for (int i = 0; i < kClasses; ++i) {
      logits[i] *= scale;
    }
    logits[label] -= 1 / static_cast<float>(batch.size);
  }
  return loss / batch.size;
}

double take_step(Model& model, Batch& batch) {
  for (int row = 0; row < batch.size; ++row) {
    std::copy_n(
        model.bias.data(), kClasses, batch.logits.data() + static_cast<long>(row) * kClasses);
  }
  cblas_sgemm(CblasRowMajor,
              CblasNoTrans,
              CblasTrans,
              batch.size,
              kClasses,
              kInputs,
              1,
              batch.images.data(),
              kInputs,
              model.weight.data(),
              kInputs,
              1,
              batch.logits.data(),
              kClasses);
  const double loss = softmax_loss(batch);
  cblas_sgemm(CblasRowMajor,
              CblasTrans,
              CblasNoTrans,
              kClasses,
              kInputs,
              batch.size,
              -kLearningRate,
              batch.logits.data(),
              kClasses,
              batch.images.data(),
              kInputs,
              1,
              model.weight.data(),
              kInputs);
  for (int row = 0; row < batch.size; ++row) {
    const float* gradient = batch.logits.data() + static_cast<long>(row) * kClasses;
    for (int i = 0; i < kClasses; ++i) {
      model.bias[static_cast<std::size_t>(i)] -= kLearningRate * gradient[i];
    }
  }
  return loss;
}

struct Training {
  double seconds = 0;
  long steps = 0;
  double loss = 0;
};

Training train(const Data& data, int epochs, std::mt19937& random) {
  Model model = make_model(random);
  Batch batch;
  std::vector<int> order(kSamples);
  std::iota(order.begin(), order.end(), 0);
  Training training;
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    for (int first = 0; first < kSamples; first += kBatch) {
      gather(data, order, first, batch);
      training.loss = take_step(model, batch);
      ++training.steps;
    }
  }
  training.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return training;
}

}  // namespace

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  if (epochs < 1) {
    fmt::print(stderr, "seed_floor: '{}' is not a number of epochs\n", argv[1]);
    return 2;
  }
  openblas_set_num_threads(1);
  std::mt19937 random(0);
  const Data data = make_data(random);
  train(data, 1, random);
  const Training training = train(data, epochs, random);
  fmt::print("{{\"seconds\":{},\"steps\":{},\"last_loss\":{}}}\n",
             training.seconds,
             training.steps,
             training.loss);
  return 0;
}
