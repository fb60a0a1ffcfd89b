#include "kernels/activation.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "device/cpu/cpu_queue.h"
#include "support/catch.h"
#include "support/kernel_matrix.h"

namespace lockstep {
namespace {

// What is left of a gradient far out: x, its polynomial (below 50) and a sigmoid limited to e^-80.
const double kFlat = 12 * 50 * std::exp(-80.0);

// Roundings of the longest formula, and what its exponential amounts to.
constexpr long kOperations = 16;

double reference(Activation activation, double x) {
  switch (activation) {
    case Activation::kIdentity:
      return x;
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kGelu:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

double reference_slope(Activation activation, double x) {
  if (activation == Activation::kRelu) {
    return x > 0 ? 1 : 0;
  }
  constexpr double kStep = 1e-5;
  return (reference(activation, x + kStep) - reference(activation, x - kStep)) / (2 * kStep);
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

double silu_slope(double x) {
  constexpr double kStep = 1e-5;
  return (silu(x + kStep) - silu(x - kStep)) / (2 * kStep);
}

double round_to(DType dtype, double value) {
  KernelMatrix one(dtype, 1, 1);
  one.set(0, 0, value);
  return one.at(0, 0);
}

struct Case {
  DType dtype;
  long rows;
  long cols;
};

const Case kCases[] = {{DType::kF32, 1, 1},
                       {DType::kF32, 3, 5},
                       {DType::kF32, 7, 101},
                       {DType::kF32, 300, 72},
                       {DType::kBF16, 1, 1},
                       {DType::kBF16, 3, 5},
                       {DType::kBF16, 7, 101},
                       {DType::kBF16, 300, 72}};

const Activation kActivations[] = {Activation::kIdentity, Activation::kRelu, Activation::kGelu};

}  // namespace

TEST_CASE("bias and activation match the formula and keep the rounded sum") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const Case& c : kCases) {
      for (const Activation activation : kActivations) {
        CAPTURE(c.rows, c.cols, name_of(c.dtype), static_cast<int>(activation));
        const KernelMatrix before = KernelMatrix(c.dtype, c.rows, c.cols).fill_normal(1, 3.0);
        const KernelMatrix bias = KernelMatrix(c.dtype, 1, c.cols).fill_normal(2);
        const KernelMatrix x = before;
        const KernelMatrix y(c.dtype, c.rows, c.cols, 5);
        BiasActivation op;
        op.activation = activation;
        op.x = x.view();
        op.bias = bias.view();
        op.y = y.view();

        launch(queue, op);

        CHECK(largest_difference(x, [&](long row, long col) {
                return round_to(c.dtype, before.at(row, col) + bias.at(0, col));
              }) == 0);
        CHECK(largest_difference(y, [&](long row, long col) {
                return reference(activation, x.at(row, col));
              }) <= rounding_bound(c.dtype, kOperations, x.largest()));
        CHECK(x.guards_intact());
        CHECK(y.guards_intact());
      }
    }
  });
}

TEST_CASE("GELU keeps its relative accuracy far into the negative tail") {
  for_each_instruction_set([] {
    CpuQueue queue(1);
    KernelMatrix x(DType::kF32, 1, 60);
    for (long i = 0; i < 60; ++i) {
      x.set(0, i, -0.1 * static_cast<double>(i));
    }
    const KernelMatrix y(DType::kF32, 1, 60);
    BiasActivation op;
    op.activation = Activation::kGelu;
    op.x = x.view();
    op.y = y.view();

    launch(queue, op);

    for (long i = 0; i < 60; ++i) {
      const double u = x.at(0, i);
      const double exact =
          u / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (u + 0.044715 * u * u * u)));
      // An error of one rounding in the exponent 2u (up to 25 here) is one of e^2u relatively.
      CHECK(std::abs(y.at(0, i) - exact) <=
            rounding_bound(DType::kF32, kOperations + 25, std::abs(exact)));
    }
  });
}

TEST_CASE("activations keep NaN and stay finite for huge arguments") {
  for_each_instruction_set([] {
    CpuQueue queue(1);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    float x[] = {nan, 1e30F, -1e30F, -20.0F};
    float y[4] = {};
    float dy[] = {1, 1, 1, 1};
    float dx[4] = {};
    for (const Activation activation : {Activation::kRelu, Activation::kGelu}) {
      BiasActivation forward;
      forward.activation = activation;
      forward.x = {static_cast<void*>(x), DType::kF32, 1, 4};
      forward.y = {static_cast<void*>(y), DType::kF32, 1, 4};
      ActivationBackward backward;
      backward.activation = activation;
      backward.x = forward.x;
      backward.dy = {static_cast<void*>(dy), DType::kF32, 1, 4};
      backward.dx = {static_cast<void*>(dx), DType::kF32, 1, 4};

      launch(queue, forward);
      launch(queue, backward);

      CHECK(std::isnan(y[0]));
      CHECK(y[1] == 1e30F);
      CHECK(y[2] == 0.0F);
      CHECK(y[3] == 0.0F);
      CHECK(dx[1] == 1.0F);
      CHECK(std::abs(dx[2]) <= kFlat);
    }
    CHECK(std::isnan(dx[0]));
  });
}

TEST_CASE("the activation gradient matches finite differences, in place of dy too") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const Case& c : kCases) {
      for (const Activation activation : kActivations) {
        CAPTURE(c.rows, c.cols, name_of(c.dtype), static_cast<int>(activation));
        const KernelMatrix x = KernelMatrix(c.dtype, c.rows, c.cols).fill_normal(1, 2.0);
        const KernelMatrix dy = KernelMatrix(c.dtype, c.rows, c.cols, 1).fill_normal(2);
        const KernelMatrix dx(c.dtype, c.rows, c.cols, 1);
        const KernelMatrix in_place = dy;
        ActivationBackward op;
        op.activation = activation;
        op.x = x.view();
        op.dy = dy.view();
        op.dx = dx.view();

        launch(queue, op);
        op.dy = op.dx = in_place.view();
        launch(queue, op);

        CHECK(largest_difference(dx, [&](long row, long col) {
                return dy.at(row, col) * reference_slope(activation, x.at(row, col));
              }) <= rounding_bound(c.dtype, kOperations, 2 * dy.largest()));
        CHECK(dx == in_place);
        CHECK(dx.guards_intact());
      }
    }
  });
}

TEST_CASE("SwiGLU and its gradients match the formula, with gradients in place of gate and up") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const Case& c : kCases) {
      CAPTURE(c.rows, c.cols, name_of(c.dtype));
      const KernelMatrix gate = KernelMatrix(c.dtype, c.rows, c.cols).fill_normal(1, 2.0);
      const KernelMatrix up = KernelMatrix(c.dtype, c.rows, c.cols, 2).fill_normal(2);
      const KernelMatrix dy = KernelMatrix(c.dtype, c.rows, c.cols, 0).fill_normal(3);
      const KernelMatrix y(c.dtype, c.rows, c.cols);
      const KernelMatrix dgate = gate;
      const KernelMatrix dup = up;

      launch(queue, Swiglu{gate.view(), up.view(), y.view()});
      launch(queue, SwigluBackward{dgate.view(), dup.view(), dy.view(), dgate.view(), dup.view()});

      CHECK(largest_difference(y, [&](long row, long col) {
              return silu(gate.at(row, col)) * up.at(row, col);
            }) <= rounding_bound(c.dtype, kOperations, gate.largest() * up.largest()));
      CHECK(largest_difference(dgate, [&](long row, long col) {
              return dy.at(row, col) * up.at(row, col) * silu_slope(gate.at(row, col));
            }) <= rounding_bound(c.dtype, kOperations, 2 * dy.largest() * up.largest()));
      CHECK(largest_difference(dup, [&](long row, long col) {
              return dy.at(row, col) * silu(gate.at(row, col));
            }) <= rounding_bound(c.dtype, kOperations, dy.largest() * gate.largest()));
      CHECK(y.guards_intact());
      CHECK(dgate.guards_intact());
      CHECK(dup.guards_intact());
    }
  });
}

TEST_CASE("an activation has the same bits for any number of threads") {
  const KernelMatrix x = KernelMatrix(DType::kBF16, 700, 101).fill_normal(1);
  const KernelMatrix expected(DType::kBF16, 700, 101);
  BiasActivation op;
  op.activation = Activation::kGelu;
  op.x = x.view();
  op.y = expected.view();
  CpuQueue one(1);
  launch(one, op);

  for (const int threads : {2, 5}) {
    CpuQueue queue(threads);
    const KernelMatrix y(DType::kBF16, 700, 101);
    op.y = y.view();
    launch(queue, op);
    CHECK(y == expected);
  }
}

}  // namespace lockstep
