// Elementwise kernels on both devices.
#include "kernels/activation.h"

#include <functional>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "operand.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr long kRows = 5;
constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
constexpr Activation kActivations[] = {Activation::kIdentity, Activation::kRelu, Activation::kGelu};
constexpr long kOperations = 12;  // roundings in f32 on the way to a result

void check(Operand& result, long operations = kOperations) {
  const double magnitude = largest_magnitude(result.from_cpu());
  CHECK(largest_difference(result) <= twin_bound(result.cpu().dtype, operations, magnitude));
  CHECK(result.surroundings_agree());
}

// Calls body(dtype, columns, placement) for whole and broken vectors, more than a block's threads among them.
void for_each_shape(const std::function<void(DType, long, Placement)>& body) {
  for (const DType dtype : kTypes) {
    for (const long cols : {1L, 16L, 37L, 1101L}) {
      for (const Placement placement : kPlacements) {
        CAPTURE(name_of(dtype), cols, placement.offset);
        body(dtype, cols, placement);
      }
    }
  }
}

}  // namespace

TEST_CASE("bias and activation on a GPU are those of the CPU") {
  TwinQueues queues;
  for (const Activation activation : kActivations) {
    for (const bool with_bias : {false, true}) {
      for_each_shape([&](DType dtype, long cols, Placement placement) {
        CAPTURE(static_cast<int>(activation), with_bias);
        Operand x(queues, dtype, kRows, cols, 1, placement, 4.0);
        Operand bias(queues, dtype, 1, cols, 2, placement);
        Operand y(queues, dtype, kRows, cols, 3, placement);
        const auto op = [&](bool on_cuda) {
          const auto of = [&](Operand& operand) {
            return on_cuda ? operand.cuda() : operand.cpu();
          };
          return BiasActivation{.activation = activation,
                                .x = of(x),
                                .bias = with_bias ? of(bias) : Matrix(),
                                .y = of(y)};
        };
        launch(queues.cpu(), op(false));

        run_on_cuda(queues.cuda(), op(true));

        CHECK(same_bits(x.from_cuda(), x.from_cpu()));
        CHECK(x.surroundings_agree());
        check(y);
      });
    }
  }
}

TEST_CASE("an activation on a GPU works in place and without a result") {
  TwinQueues queues;
  Operand x(queues, DType::kF32, kRows, 37, 1);
  Operand bias(queues, DType::kF32, 1, 37, 2);
  const auto add = [&](Matrix of, Matrix by) {
    return BiasActivation{.x = of, .bias = by, .y = {}};
  };
  const auto gelu = [](Matrix of) {
    return BiasActivation{.activation = Activation::kGelu, .x = of, .bias = {}, .y = of};
  };
  launch(queues.cpu(), add(x.cpu(), bias.cpu()));
  launch(queues.cpu(), gelu(x.cpu()));

  run_on_cuda(queues.cuda(), add(x.cuda(), bias.cuda()));
  run_on_cuda(queues.cuda(), gelu(x.cuda()));

  check(x);
}

TEST_CASE("an activation on a GPU keeps NaN and is finite where its argument is") {
  TwinQueues queues;
  for (const DType dtype : kTypes) {
    for (const Activation activation : kActivations) {
      const std::vector<double> values = {-1e30, -200.0, -87.0, -13.0, 0.0, 13.0, 200.0, 1e30};
      const auto cols = static_cast<long>(values.size()) + 1;
      Operand x(queues, dtype, 1, cols, 1);
      Operand y(queues, dtype, 1, cols, 2);
      Operand dx(queues, dtype, 1, cols, 3);
      for (long col = 0; col + 1 < cols; ++col) {
        x.set(0, col, values[static_cast<std::size_t>(col)]);
      }
      x.set(0, cols - 1, std::numeric_limits<double>::quiet_NaN());
      x.upload();

      run_on_cuda(
          queues.cuda(),
          BiasActivation{.activation = activation, .x = x.cuda(), .bias = {}, .y = y.cuda()});
      run_on_cuda(queues.cuda(),
                  ActivationBackward{
                      .activation = activation, .x = x.cuda(), .dy = y.cuda(), .dx = dx.cuda()});

      const std::vector<float> result = y.from_cuda();
      const std::vector<float> gradient = dx.from_cuda();
      CHECK(std::isnan(result.back()));
      CHECK(std::isnan(gradient.back()));
      for (std::size_t i = 0; i + 1 < result.size(); ++i) {
        CHECK(std::isfinite(result[i]));
        CHECK(std::isfinite(gradient[i]));
      }
    }
  }
}

TEST_CASE("gradients of activations on a GPU are those of the CPU") {
  TwinQueues queues;
  for (const Activation activation : kActivations) {
    for_each_shape([&](DType dtype, long cols, Placement placement) {
      CAPTURE(static_cast<int>(activation));
      Operand x(queues, dtype, kRows, cols, 1, placement, 4.0);
      Operand dy(queues, dtype, kRows, cols, 2, placement);
      const auto op = [&](Matrix of_x, Matrix of_dy) {  // in place, which both allow
        return ActivationBackward{.activation = activation, .x = of_x, .dy = of_dy, .dx = of_dy};
      };
      launch(queues.cpu(), op(x.cpu(), dy.cpu()));

      run_on_cuda(queues.cuda(), op(x.cuda(), dy.cuda()));

      check(dy, 2 * kOperations);
    });
  }
}

TEST_CASE("swiglu on a GPU and its gradients are those of the CPU") {
  TwinQueues queues;
  for_each_shape([&](DType dtype, long cols, Placement placement) {
    Operand gate(queues, dtype, kRows, cols, 1, placement, 3.0);
    Operand up(queues, dtype, kRows, cols, 2, placement);
    Operand y(queues, dtype, kRows, cols, 3, placement);
    Operand dy(queues, dtype, kRows, cols, 4, placement);
    const auto forward = [](Matrix g, Matrix u, Matrix out) {
      return Swiglu{.gate = g, .up = u, .y = out};
    };
    const auto backward = [](Matrix g, Matrix u, Matrix d) {
      return SwigluBackward{.gate = g, .up = u, .dy = d, .dgate = g, .dup = u};
    };
    launch(queues.cpu(), forward(gate.cpu(), up.cpu(), y.cpu()));
    launch(queues.cpu(), backward(gate.cpu(), up.cpu(), dy.cpu()));

    run_on_cuda(queues.cuda(), forward(gate.cuda(), up.cuda(), y.cuda()));
    run_on_cuda(queues.cuda(), backward(gate.cuda(), up.cuda(), dy.cuda()));

    check(y);
    check(gate, 2 * kOperations);
    check(up);
  });
}

TEST_CASE("rotary embedding on a GPU turns heads as on the CPU, either way") {
  TwinQueues queues;
  constexpr long kSeqLength = 3;
  constexpr long kHeads = 3;
  for (const DType dtype : kTypes) {
    for (const long head_dim : {2L, 16L, 22L, 48L}) {
      for (const Placement placement : kPlacements) {
        CAPTURE(name_of(dtype), head_dim, placement.offset);
        const auto angles = static_cast<std::size_t>(kSeqLength * head_dim / 2);
        TwinArray<float> cos(queues, random_values(angles, 1));
        TwinArray<float> sin(queues, random_values(angles, 2));
        for (const bool inverse : {false, true}) {
          Operand x(queues, dtype, 2 * kSeqLength, kHeads * head_dim, 3, placement);
          launch(queues.cpu(),
                 Rotary{x.cpu(), head_dim, kSeqLength, cos.cpu(), sin.cpu(), inverse});

          run_on_cuda(queues.cuda(),
                      Rotary{x.cuda(), head_dim, kSeqLength, cos.cuda(), sin.cuda(), inverse});

          check(x, 4);
        }
      }
    }
  }
}

TEST_CASE("blocks on a GPU combine to the CPU's bits") {
  TwinQueues queues;
  for (const DType dtype : kTypes) {
    for (const DType operand : kTypes) {
      for (const DType out : kTypes) {
        for (const int count : {1, 2, 3, 7, 64}) {
          for (const Placement placement : kPlacements) {
            const long cols = 21;
            CAPTURE(name_of(dtype), name_of(operand), name_of(out), count, placement.offset);
            Operand blocks(queues, dtype, kRows * count, cols, 1, placement);
            Operand bias(queues, operand, 1, cols, 2, placement);
            Operand residual(queues, operand, kRows, cols, 3, placement);
            Operand result(queues, out, kRows, cols, 4, placement);
            const auto op = [&](bool on_cuda) {
              const auto of = [&](Operand& m) { return on_cuda ? m.cuda() : m.cpu(); };
              const Matrix all = of(blocks);
              return CombineBlocks{
                  .blocks = BlockSum(all.row_range(0, kRows), count, kRows * all.stride),
                  .bias = count == 3 ? Matrix() : of(bias),
                  .residual = count == 2 ? Matrix() : of(residual),
                  .out = of(result)};
            };
            launch(queues.cpu(), op(false));

            run_on_cuda(queues.cuda(), op(true));

            CHECK(same_bits(result.from_cuda(), result.from_cpu()));
            CHECK(result.surroundings_agree());
          }
        }
      }
    }
  }
}

}  // namespace lockstep
