#include "nn/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/reduce.h"
#include "support/catch.h"
#include "support/error_text.h"
#include "unit/nn/tiny_model.h"

namespace lockstep {
namespace {

using test::tiny_config;
using test::TinyModel;

struct Variant {
  const char* architecture = "";
  bool tied = false;
  int blocks = 1;
  double dropout = 0;
};

const Variant kVariants[] = {{"mlp", true, 1},
                             {"mlp", true, 2},
                             {"gpt2", true, 1},
                             {"gpt2", false, 2},
                             {"gpt2", true, 4},
                             {"llama", false, 1},
                             {"llama", true, 2},
                             {"llama", false, 4},
                             // More blocks than kv heads: three, four, or six share each.
                             {"llama", true, 6},
                             {"llama", false, 8},
                             {"llama", true, 12},
                             {"gpt2", true, 12},
                             {"gpt2", true, 1, 0.2},
                             {"gpt2", false, 4, 0.3},
                             {"gpt2", true, 12, 0.1}};

ModelConfig config_of(const Variant& variant) {
  ModelConfig config = tiny_config(variant.architecture, variant.tied);
  config.dropout = variant.dropout;
  return config;
}

// Rounding of a loss: about 25 stages with sums of up to 37 terms in f32, whose independent
// roundings add by their squares, with logits of the size of the loss.
double loss_rounding(double loss) {
  const double roundings = 25.0 * 37.0;
  return std::sqrt(roundings) * epsilon(DType::kF32) / 2 * std::abs(loss);
}

struct Slope {
  double measured = 0;
  double expected = 0;
  double tolerance = 0;
};

// The derivative of the loss along `direction` (unit length, in the elements of one parameter), by
// central differences at h and 2h. Their difference is three times the truncation error of the
// first, which the extrapolation removes; what is left is of higher order and smaller.
Slope slope_along(TinyModel& model, long offset, const std::vector<double>& direction, double h) {
  const std::vector<float> before(model.weights() + offset,
                                  model.weights() + offset + direction.size());
  double expected = 0;
  const auto loss_at = [&](double step, bool note) {
    for (std::size_t i = 0; i < direction.size(); ++i) {
      float& weight = model.weights()[offset + static_cast<long>(i)];
      weight = static_cast<float>(static_cast<double>(before[i]) + step * direction[i]);
      if (note) {  // the step that was really taken, after rounding
        expected += model.gradient(offset + static_cast<long>(i)) *
                    (static_cast<double>(weight) - static_cast<double>(before[i])) / step / 2;
      }
    }
    return model.loss();
  };
  const double near = (loss_at(h, true) - loss_at(-h, true)) / (2 * h);
  const double up = loss_at(2 * h, false);
  const double far = (up - loss_at(-2 * h, false)) / (4 * h);
  std::copy(before.begin(), before.end(), model.weights() + offset);
  const double truncation = std::abs(far - near) / 3;
  return {near + (near - far) / 3, expected, truncation + 4 * loss_rounding(up) / h};
}

std::vector<double> unit(std::vector<double> direction) {
  double square = 0;
  for (const double x : direction) {
    square += x * x;
  }
  for (double& x : direction) {
    x /= square > 0 ? std::sqrt(square) : 1.0;
  }
  return direction;
}

// What passes announced, without calls that announce nothing.
struct Announced {
  std::vector<long> first;
  void operator()(long from) {
    if (from != std::numeric_limits<long>::max()) {
      first.push_back(from);
    }
  }
};

}  // namespace

TEST_CASE("gradients of whole models are the slopes of the loss") {
  for (const Variant& variant : kVariants) {
    TinyModel model(config_of(variant), variant.blocks);
    model.backward();
    // ReLU has kinks, which small steps seldom cross.
    const double h = std::string(variant.architecture) == "mlp" ? 1e-3 : 3e-2;
    for (const Parameter& parameter : model.table().parameters()) {
      const auto size = static_cast<std::size_t>(parameter.stored_elements());
      std::vector<double> steepest(size);
      std::vector<double> random(size);
      const RandomStream stream(5, RandomPurpose::kTest, site_of(parameter.name.c_str()));
      parameter.for_each_run([&](long canonical, long stored, long count) {
        for (long i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(stored + i);
          steepest[at] = model.gradient(parameter.offset + stored + i);
          random[at] =
              static_cast<double>(stream.normal(static_cast<std::uint64_t>(canonical + i)));
        }
      });
      for (const auto& direction : {unit(steepest), unit(random)}) {
        const Slope slope = slope_along(model, parameter.offset, direction, h);
        INFO(variant.architecture << ", " << variant.blocks << " blocks, " << parameter.name << ": "
                                  << slope.measured << " against " << slope.expected);
        CHECK(std::abs(slope.measured - slope.expected) <= slope.tolerance);
      }
    }
  }
}

TEST_CASE("padding gets no gradient") {
  for (const Variant& variant : kVariants) {
    TinyModel model(config_of(variant), variant.blocks);
    model.backward();

    std::vector<bool> used(static_cast<std::size_t>(model.table().flat_size()));
    for (const Parameter& parameter : model.table().parameters()) {
      parameter.for_each_run([&](long /*canonical*/, long stored, long count) {
        const auto first = used.begin() + parameter.offset + stored;
        std::fill(first, first + count, true);
      });
    }
    long not_zero = 0;
    for (long i = 0; i < model.table().flat_size(); ++i) {
      not_zero += !used[static_cast<std::size_t>(i)] && model.gradient(i) != 0.0 ? 1 : 0;
    }
    INFO(variant.architecture << ", " << variant.blocks << " blocks");
    CHECK(not_zero == 0);
  }
}

TEST_CASE("a second micro-batch is added to the gradients of the first") {
  for (const Variant& variant : kVariants) {
    TinyModel once(config_of(variant), variant.blocks);
    TinyModel twice(config_of(variant), variant.blocks);
    once.backward();
    twice.backward();
    twice.backward(1.0F, true);

    double largest = 0;
    double worst = 0;
    for (long i = 0; i < once.table().gradient_size(); ++i) {
      const auto expected = 2 * static_cast<double>(once.gradients()[i]);
      largest = std::max(largest, std::abs(expected));
      worst = std::max(worst, std::abs(static_cast<double>(twice.gradients()[i]) - expected));
    }
    INFO(variant.architecture << ", " << variant.blocks << " blocks");
    // Sums of up to 21 positions go on from the first micro-batch's in another order of additions.
    CHECK(worst <= 21 * epsilon(DType::kF32) * largest);
    CHECK(largest > 0);
  }
}

TEST_CASE("gradients scale with the loss scale and a power of two keeps their bits") {
  for (const Variant& variant : kVariants) {
    TinyModel whole(config_of(variant), variant.blocks);
    TinyModel eighth(config_of(variant), variant.blocks);
    const double loss = whole.backward(1.0F);
    const double same_loss = eighth.backward(0.125F);

    CHECK(loss == same_loss);
    long different = 0;
    for (long i = 0; i < whole.table().gradient_size(); ++i) {
      different += whole.gradients()[i] * 0.125F != eighth.gradients()[i] ? 1 : 0;
    }
    CHECK(different == 0);
  }
}

TEST_CASE("nothing is dropped where a pass has no place in a training") {
  for (const double dropout : {0.0, 0.3}) {
    ModelConfig config = tiny_config("gpt2");
    const double expected = TinyModel(config, 2).loss();
    config.dropout = dropout;
    TinyModel model(config, 2);

    CHECK((model.loss() == expected) == (dropout == 0));

    model.leave_training();
    CHECK(model.loss() == expected);
  }
}

TEST_CASE("architectures without dropout refuse it") {
  for (const char* architecture : {"llama", "mlp"}) {
    ModelConfig config = tiny_config(architecture);
    config.dropout = 0.5;

    const std::string text = test::request_error_of([&] { make_model(config, DType::kF32, 1); });

    CHECK_THAT(text, Catch::StartsWith("model.dropout = 0.5: ") && Catch::Contains(architecture));
  }
}

TEST_CASE("evaluation gives the loss of training and leaves the stack as it was") {
  for (const Variant& variant : kVariants) {
    TinyModel model(config_of(variant), variant.blocks);

    const double trained = model.backward();

    CHECK(model.loss() == trained);
    CHECK(model.stack_in_use() == 0);
    CHECK(trained > 0);
  }
}

TEST_CASE("the number of blocks changes a loss by rounding only") {
  for (const Variant& variant : {Variant{"mlp", true, 1},
                                 Variant{"gpt2", true, 1},
                                 Variant{"gpt2", true, 1, 0.25},
                                 Variant{"llama", true, 1}}) {
    TinyModel whole(config_of(variant), 1);
    const double expected = whole.loss();
    for (const int blocks : {2, 3, 4, 6, 8, 12}) {
      TinyModel cut(config_of(variant), blocks);

      CHECK(std::abs(cut.loss() - expected) <= 4 * loss_rounding(expected));
    }
  }
}

TEST_CASE("a backward pass announces its gradients from the end of the buffer to its front") {
  for (const Variant& variant : kVariants) {
    TinyModel model(config_of(variant), variant.blocks);
    TinyModel expected(config_of(variant), variant.blocks);
    expected.backward();
    std::vector<long> announced;
    long wrong = 0;
    long end = model.table().gradient_size();

    model.backward(1.0F, false, [&](long first) {
      if (first > end) {
        return;  // nothing new is complete
      }
      announced.push_back(first);
      wrong += std::memcmp(model.gradients() + first,
                           expected.gradients() + first,
                           static_cast<std::size_t>(std::max(0L, end - first)) * sizeof(float)) != 0
                   ? 1
                   : 0;
      end = first;
    });

    INFO(variant.architecture << ", " << variant.blocks << " blocks");
    CHECK(wrong == 0);
    CHECK(std::is_sorted(announced.rbegin(), announced.rend()));
    CHECK(announced.back() == 0);
    CHECK(announced.size() > 3);
  }
}

TEST_CASE("a backward pass in two parts gives the bits of a whole one") {
  for (const Variant& variant : kVariants) {
    if (std::string(variant.architecture) == "mlp") {
      continue;
    }
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective}) {
      TinyModel whole(config_of(variant), variant.blocks);
      TinyModel parts(config_of(variant), variant.blocks);
      const auto count = static_cast<std::size_t>(whole.table().gradient_size());
      INFO(variant.architecture << ", " << variant.blocks << " blocks, tied " << variant.tied);
      for (const bool accumulate : {false, true}) {
        Announced expected;
        Announced announced;
        const double loss = whole.backward(1.0F, accumulate, expected);
        const std::vector<float> before(parts.gradients(), parts.gradients() + count);
        bool touched = false;
        std::size_t early = 0;
        const auto between = [&] {
          touched = std::memcmp(before.data(), parts.gradients(), count * sizeof(float)) != 0;
          early = announced.first.size();
        };

        const double same_loss = parts.backward_in_parts(recompute, accumulate, between, announced);

        CHECK(same_loss == loss);
        CHECK_FALSE(touched);
        CHECK(early == 0);  // a forward pass and an input part complete nothing
        CHECK(announced.first == expected.first);
        CHECK(std::memcmp(whole.gradients(), parts.gradients(), count * sizeof(float)) == 0);
        CHECK(parts.stack_in_use() == 0);
      }
    }
  }
}

}  // namespace lockstep
