#include "optim/optimizer.h"

#include <cmath>

#include "base/bfloat16.h"
#include "device/cpu/cpu_queue.h"
#include "support/catch.h"
#include "support/test_matrix.h"

namespace lockstep {
namespace {

constexpr long kCount = 300;
constexpr long kCut = 101;  // elements before it decay

// Elements [begin, end), at the same place in all buffers.
OptimizerRange range(long begin, long end, bool decays) {
  return {begin, begin, begin, begin, end - begin, decays};
}

const std::vector<OptimizerRange> kRanges{range(0, kCut, true), range(kCut, kCount, false)};

// Updates in f64, elementwise as the papers say.
struct Reference {
  OptimizerConfig config;
  std::vector<double> parameter;
  std::vector<double> first = std::vector<double>(kCount, 0.0);
  std::vector<double> second = std::vector<double>(kCount, 0.0);

  void update(const std::vector<float>& gradient, double lr, double scale, int number) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const double decay = static_cast<long>(i) < kCut ? config.weight_decay : 0.0;
      double g = static_cast<double>(gradient[i]) * scale;
      double& p = parameter[i];
      if (config.name == "sgd") {
        g += decay * p;
        first[i] = config.momentum * first[i] + g;
        p -= lr * first[i];
        continue;
      }
      p -= lr * decay * p;
      first[i] = config.beta1 * first[i] + (1 - config.beta1) * g;
      second[i] = config.beta2 * second[i] + (1 - config.beta2) * g * g;
      const double mean = first[i] / (1 - std::pow(config.beta1, number));
      const double square = second[i] / (1 - std::pow(config.beta2, number));
      p -= lr * mean / (std::sqrt(square) + config.epsilon);
    }
  }
};

OptimizerConfig config_of(const std::string& name, double momentum = 0) {
  OptimizerConfig config;
  config.name = name;
  config.momentum = momentum;
  config.weight_decay = 0.3;
  return config;
}

void check_updates(const OptimizerConfig& config) {
  CpuQueue queue(2);
  const Optimizer optimizer(config, kRanges, kCount, queue);
  std::vector<float> parameters = test_vector(kCount, 1);
  std::vector<BFloat16> compute(kCount);
  Reference reference{config, {parameters.begin(), parameters.end()}};
  constexpr int kUpdates = 5;
  constexpr double kLr = 0.01;
  for (int number = 1; number <= kUpdates; ++number) {
    const std::vector<float> gradients = test_vector(kCount, static_cast<std::uint64_t>(number));
    optimizer.update(queue,
                     {.master = parameters.data(),
                      .gradients = gradients.data(),
                      .compute_bf16 = compute.data(),
                      .lr = kLr,
                      .gradient_scale = 0.5F,
                      .update_number = number});
    reference.update(gradients, kLr, 0.5, number);
  }
  double worst = 0;
  long not_rounded = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(parameters[i]) - reference.parameter[i]));
    not_rounded += to_float(compute[i]) != to_float(to_bfloat16(parameters[i])) ? 1 : 0;
  }
  // An update: the parameter (at most one) is rounded three times, and the movement about ten.
  CHECK(worst <= kUpdates * (3 + 10 * kLr) * epsilon(DType::kF32));
  CHECK(not_rounded == 0);
}

}  // namespace

TEST_CASE("each optimiser follows its formula in f64 and decays only the ranges that decay") {
  check_updates(config_of("adamw"));
  check_updates(config_of("sgd"));
  check_updates(config_of("sgd", 0.9));
}

TEST_CASE("the state of an optimiser has the names and the size that checkpoints need") {
  CpuQueue queue(1);
  const Optimizer adamw(config_of("adamw"), kRanges, kCount, queue);
  const Optimizer sgd(config_of("sgd"), kRanges, kCount, queue);
  const Optimizer momentum(config_of("sgd", 0.9), kRanges, kCount, queue);

  REQUIRE(adamw.states().size() == 2);
  CHECK(adamw.states()[0].name == "exp_avg");
  CHECK(adamw.states()[1].name == "exp_avg_sq");
  CHECK(adamw.states()[1].data - adamw.states()[0].data == kCount);
  CHECK(adamw.bytes() == 2 * kCount * sizeof(float));
  CHECK(sgd.states().empty());
  CHECK(sgd.bytes() == 0);
  REQUIRE(momentum.states().size() == 1);
  CHECK(momentum.states()[0].name == "momentum_buffer");
}

TEST_CASE("a learning rate of zero leaves the parameters and moves the state") {
  CpuQueue queue(1);
  const Optimizer optimizer(config_of("adamw"), kRanges, kCount, queue);
  std::vector<float> parameters = test_vector(kCount, 1);
  const std::vector<float> before = parameters;
  const std::vector<float> gradients = test_vector(kCount, 2);

  optimizer.update(queue, {.master = parameters.data(), .gradients = gradients.data()});

  CHECK(same_bits(parameters, before));
  CHECK(optimizer.states()[0].data[7] != 0.0F);
}

TEST_CASE("cutting the buffer into other ranges of the same decay leaves the bits") {
  CpuQueue queue(1);
  const std::vector<float> gradients = test_vector(kCount, 2);
  std::vector<float> whole = test_vector(kCount, 1);
  std::vector<float> cut = whole;
  const Optimizer one(config_of("adamw"), {range(0, kCount, true)}, kCount, queue);
  const Optimizer three(config_of("adamw"),
                        {range(0, 5, true), range(5, 102, true), range(102, kCount, true)},
                        kCount,
                        queue);

  one.update(queue, {.master = whole.data(), .gradients = gradients.data(), .lr = 0.01});
  three.update(queue, {.master = cut.data(), .gradients = gradients.data(), .lr = 0.01});

  CHECK(same_bits(whole, cut));
}

TEST_CASE("a shard is updated like the same elements of the whole") {
  CpuQueue queue(1);
  const std::vector<float> gradients = test_vector(kCount, 2);
  std::vector<float> whole = test_vector(kCount, 1);
  const long begin = 40;
  const long count = 90;
  std::vector<float> shard(whole.begin() + begin, whole.begin() + begin + count);
  const Optimizer all(config_of("adamw"), {range(0, kCount, true)}, kCount, queue);
  const Optimizer part(config_of("adamw"), {{0, 0, begin, 0, count, true}}, count, queue);

  for (long number = 1; number <= 2; ++number) {
    for (const auto& [optimizer, values] : {std::pair(&all, &whole), std::pair(&part, &shard)}) {
      optimizer->update(queue,
                        {.master = values->data(),
                         .gradients = gradients.data(),
                         .lr = 0.01,
                         .update_number = number});
    }
  }

  CHECK(same_bits(shard, {whole.begin() + begin, whole.begin() + begin + count}));
}

}  // namespace lockstep
