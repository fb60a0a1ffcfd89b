#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/catch.h"
#include "support/test_matrix.h"

namespace lockstep {
namespace {

constexpr std::size_t kCount = 40'007;

struct State {
  std::vector<float> parameter = test_vector(kCount, 1);
  std::vector<float> first = test_vector(kCount, 2);
  std::vector<float> second = squares(test_vector(kCount, 3));
  std::vector<float> gradient = test_vector(kCount, 4);
  std::vector<BFloat16> rounded = std::vector<BFloat16>(kCount);

  static std::vector<float> squares(std::vector<float> values) {
    for (float& value : values) {
      value *= value;
    }
    return values;
  }
};

AdamW adamw_op(State& state, std::size_t begin, std::size_t end) {
  AdamW op;
  op.count = static_cast<long>(end - begin);
  op.parameter = state.parameter.data() + begin;
  op.first_moment = state.first.data() + begin;
  op.second_moment = state.second.data() + begin;
  op.gradient = state.gradient.data() + begin;
  op.compute_bf16 = state.rounded.data() + begin;
  op.lr = 1e-3;
  op.weight_decay = 0.1;
  op.correction1 = 1 - std::pow(0.9, 3);
  op.correction2 = 1 - std::pow(0.95, 3);
  op.gradient_scale = 0.25F;
  return op;
}

Sgd sgd_op(State& state, std::size_t begin, std::size_t end, double momentum) {
  Sgd op;
  op.count = static_cast<long>(end - begin);
  op.parameter = state.parameter.data() + begin;
  op.velocity = momentum == 0 ? nullptr : state.first.data() + begin;
  op.gradient = state.gradient.data() + begin;
  op.compute_bf16 = state.rounded.data() + begin;
  op.lr = 0.05;
  op.momentum = momentum;
  op.weight_decay = 0.01;
  op.gradient_scale = 0.25F;
  return op;
}

bool same_state(const State& a, const State& b) {
  const auto same_rounded = [&] {
    return std::equal(a.rounded.begin(), a.rounded.end(), b.rounded.begin(), [](auto x, auto y) {
      return x.bits == y.bits;
    });
  };
  return same_bits(a.parameter, b.parameter) && same_bits(a.first, b.first) &&
         same_bits(a.second, b.second) && same_rounded();
}

// True when `found` is within `roundings` roundings of f32 of values below `magnitude`.
bool close(float found, double expected, double magnitude, double roundings) {
  return std::abs(static_cast<double>(found) - expected) <=
         roundings * epsilon(DType::kF32) * magnitude;
}

}  // namespace

TEST_CASE("AdamW updates as the paper says") {
  CpuQueue queue(2);
  State state;
  const State before;
  const AdamW op = adamw_op(state, 0, kCount);

  launch(queue, op);

  long wrong = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double g = static_cast<double>(before.gradient[i]) * 0.25;
    const auto p = static_cast<double>(before.parameter[i]);
    const double m = op.beta1 * static_cast<double>(before.first[i]) + (1 - op.beta1) * g;
    const double v = op.beta2 * static_cast<double>(before.second[i]) + (1 - op.beta2) * g * g;
    const double update = op.lr / op.correction1 * m / (std::sqrt(v / op.correction2) + op.epsilon);
    const double expected = p - op.lr * op.weight_decay * p - update;
    // Rounding of the constants and of each operation; m may cancel, so its error is absolute.
    const double m_size = std::abs(op.beta1 * static_cast<double>(before.first[i])) + std::abs(g);
    const double update_size = std::abs(update) / std::max(std::abs(m), 1e-30) * m_size;
    wrong += close(state.first[i], m, m_size, 4) ? 0 : 1;
    wrong += close(state.second[i], v, v, 5) ? 0 : 1;
    wrong += close(state.parameter[i], expected, std::abs(p) + 10 * update_size, 2) ? 0 : 1;
    wrong += state.rounded[i].bits == to_bfloat16(state.parameter[i]).bits ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("SGD updates with and without momentum") {
  for (const double momentum : {0.0, 0.9}) {
    CpuQueue queue(2);
    State state;
    const State before;

    launch(queue, sgd_op(state, 0, kCount, momentum));

    long wrong = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto p = static_cast<double>(before.parameter[i]);
      double g = static_cast<double>(before.gradient[i]) * 0.25 + 0.01 * p;
      if (momentum != 0) {
        g += momentum * static_cast<double>(before.first[i]);
        wrong += close(state.first[i], g, 1.3, 4) ? 0 : 1;
      }
      wrong += close(state.parameter[i], p - 0.05 * g, std::abs(p) + 0.05 * 1.3, 4) ? 0 : 1;
      wrong += state.rounded[i].bits == to_bfloat16(state.parameter[i]).bits ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(same_bits(state.second, before.second));
    CHECK((momentum != 0 || same_bits(state.first, before.first)));
  }
}

TEST_CASE("cutting the range and the number of threads change no bit of an update") {
  State adamw;
  State sgd;
  CpuQueue one(1);
  launch(one, adamw_op(adamw, 0, kCount));
  launch(one, sgd_op(sgd, 0, kCount, 0.9));
  for (const int threads : {1, 2, 5}) {
    CpuQueue queue(threads);
    for (const std::size_t piece : {std::size_t{1013}, std::size_t{37'777}, kCount}) {
      State cut_adamw;
      State cut_sgd;

      for (std::size_t begin = 0; begin < kCount; begin += piece) {
        const std::size_t end = std::min(begin + piece, kCount);
        launch(queue, adamw_op(cut_adamw, begin, end));
        launch(queue, sgd_op(cut_sgd, begin, end, 0.9));
      }

      CHECK(same_state(cut_adamw, adamw));
      CHECK(same_state(cut_sgd, sgd));
    }
  }
}

TEST_CASE("a hundred tiny AdamW steps move a weight of f32") {
  CpuQueue queue(1);
  float parameter = 1.0F;
  float first = 0;
  float second = 0;
  const float gradient = 1e-3F;
  BFloat16 rounded{};
  AdamW op;
  op.count = 1;
  op.parameter = &parameter;
  op.first_moment = &first;
  op.second_moment = &second;
  op.gradient = &gradient;
  op.compute_bf16 = &rounded;
  op.lr = 1e-4;
  for (int step = 1; step <= 100; ++step) {
    op.correction1 = 1 - std::pow(op.beta1, step);
    op.correction2 = 1 - std::pow(op.beta2, step);

    launch(queue, op);
  }

  // With a constant gradient every step is lr, but for epsilon = 1e-8 beside 1e-3 and rounding.
  const double expected = 1.0 - 100 * 1e-4;
  CHECK(std::abs(static_cast<double>(parameter) - expected) <=
        100 * (1e-4 * 1e-5 + epsilon(DType::kF32)));
  CHECK(to_float(rounded) < 1.0F);
}

}  // namespace lockstep
