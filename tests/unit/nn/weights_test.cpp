#include "nn/weights.h"

#include <algorithm>
#include <cmath>

#include "support/catch.h"
#include "unit/nn/tiny_model.h"

namespace lockstep {
namespace {

// Initial values of all parameters in the user's order.
std::vector<float> initial_values(const ModelConfig& config,
                                  int blocks,
                                  int threads,
                                  std::uint64_t seed = 3) {
  const auto model = make_model(config, DType::kF32, blocks);
  const ParameterTable& table = model->parameters();
  CpuQueue queue(threads);
  std::vector<float> flat(static_cast<std::size_t>(table.flat_size()), 0.0F);
  initialise(table, seed, {0, table.flat_size()}, flat.data(), queue.threads());
  std::vector<float> values;
  for (const Parameter& parameter : table.parameters()) {
    const std::size_t first = values.size();
    values.resize(first + static_cast<std::size_t>(parameter.num_elements()));
    parameter.for_each_run([&](long canonical, long stored, long count) {
      std::copy_n(flat.begin() + parameter.offset + stored,
                  count,
                  values.begin() + static_cast<long>(first) + canonical);
    });
  }
  return values;
}

}  // namespace

TEST_CASE("initial weights do not depend on blocks or threads") {
  for (const char* architecture : {"mlp", "gpt2", "llama"}) {
    ModelConfig config = test::tiny_config(architecture);
    config.vocab_size = 4001;  // more than one piece of work for the threads
    const std::vector<float> expected = initial_values(config, 1, 1);

    CHECK(initial_values(config, 2, 1) == expected);
    CHECK(initial_values(config, 3, 4) == expected);
    CHECK(initial_values(config, 1, 3) == expected);
  }
}

TEST_CASE("another seed gives other initial weights") {
  const ModelConfig config = test::tiny_config("gpt2");

  CHECK(initial_values(config, 1, 1, 3) != initial_values(config, 1, 1, 4));
}

TEST_CASE("initial weights have the deviation of their parameter and padding stays zero") {
  ModelConfig config = test::tiny_config("llama", false);
  config.vocab_size = 1001;
  const auto model = make_model(config, DType::kF32, 4);
  const ParameterTable& table = model->parameters();
  CpuQueue queue(1);
  std::vector<float> flat(static_cast<std::size_t>(table.flat_size()), 0.0F);

  initialise(table, 1, {0, table.flat_size()}, flat.data(), queue.threads());

  for (const Parameter& parameter : table.parameters()) {
    const auto first = flat.begin() + parameter.offset;
    const long not_zero =
        parameter.stored_elements() - std::count(first, first + parameter.stored_elements(), 0.0F);
    long not_zero_inside = 0;
    double square = 0;
    parameter.for_each_run([&](long /*canonical*/, long stored, long count) {
      for (long i = 0; i < count; ++i) {
        const auto value =
            static_cast<double>(flat[static_cast<std::size_t>(parameter.offset + stored + i)]);
        square += value * value;
        not_zero_inside += value != 0.0 ? 1 : 0;
      }
    });
    const auto count = static_cast<double>(parameter.num_elements());
    INFO(parameter.name);
    CHECK(not_zero == not_zero_inside);
    if (parameter.initialisation == Initialisation::kNormal) {
      // The mean of n squares of normal numbers deviates by sqrt(2/n); five of those.
      const double variance = parameter.scale * parameter.scale;
      CHECK(std::abs(square / count / variance - 1) <= 5 * std::sqrt(2 / count));
    }
  }
}

TEST_CASE("uniform initial weights of an mlp stay within the bound of their layer") {
  const ModelConfig config = test::tiny_config("mlp");
  const auto model = make_model(config, DType::kF32, 1);
  const std::vector<float> values = initial_values(config, 1, 1);
  std::size_t first = 0;
  for (const Parameter& parameter : model->parameters().parameters()) {
    const auto count = static_cast<std::size_t>(parameter.num_elements());
    const auto begin = values.begin() + static_cast<long>(first);
    const auto [low, high] = std::minmax_element(begin, begin + static_cast<long>(count));
    CHECK(static_cast<double>(*low) >= -parameter.scale);
    CHECK(static_cast<double>(*high) <= parameter.scale);
    CHECK(*low < *high);
    first += count;
  }
}

}  // namespace lockstep
