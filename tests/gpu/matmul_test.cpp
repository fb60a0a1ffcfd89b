// Products on both devices: values, and bits that do not depend on where operands lie.
#include "kernels/matmul.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/matmul.h"
#include "operand.h"
#include "support/catch.h"

namespace lockstep {
namespace {

struct Case {
  long m = 0;
  long n = 0;
  long k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  DType operands = DType::kF32;
  DType result = DType::kF32;
  bool accumulate = false;
};

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

const Case kCases[] = {
    {1, 1, 1, false, false, kF32, kF32, false},
    {5, 7, 3, false, false, kF32, kF32, false},
    {33, 17, 50, false, true, kF32, kF32, true},
    {17, 40, 33, true, false, kF32, kF32, false},
    {1, 24, 16, false, false, kBF16, kBF16, false},
    {32, 24, 16, false, false, kBF16, kBF16, false},
    {13, 31, 9, false, true, kBF16, kBF16, false},
    {24, 40, 64, true, false, kBF16, kF32, true},
    {16, 8, 19, true, true, kBF16, kF32, false},
};

/// a, b and c of one case, each placed alike.
struct Operands {
  Case shape;
  Operand a;
  Operand b;
  Operand c;

  Operands(TwinQueues& queues, const Case& shape_in, Placement placement)
      : shape(shape_in),
        a(queues,
          shape.operands,
          shape.transpose_a ? shape.k : shape.m,
          shape.transpose_a ? shape.m : shape.k,
          1,
          placement),
        b(queues,
          shape.operands,
          shape.transpose_b ? shape.n : shape.k,
          shape.transpose_b ? shape.k : shape.n,
          2,
          placement),
        c(queues, shape.result, shape.m, shape.n, 3, placement) {}
  [[nodiscard]] MatMul cuda() const { return op(a.cuda(), b.cuda(), c.cuda()); }
  [[nodiscard]] MatMul cpu() { return op(a.cpu(), b.cpu(), c.cpu()); }

 private:
  [[nodiscard]] MatMul op(Matrix left, Matrix right, Matrix result) const {
    return {left, shape.transpose_a, right, shape.transpose_b, result, shape.accumulate};
  }
};

}  // namespace

TEST_CASE("a product on a GPU is that of the CPU, wherever operands lie") {
  TwinQueues queues;
  for (const Case& shape : kCases) {
    for (const Placement& placement : kPlacements) {
      CAPTURE(shape.m, shape.n, shape.k, name_of(shape.operands), placement.offset);
      Operands operands(queues, shape, placement);
      const double magnitude = static_cast<double>(shape.k) *
                                   largest_magnitude(operands.a.from_cpu()) *
                                   largest_magnitude(operands.b.from_cpu()) +
                               (shape.accumulate ? largest_magnitude(operands.c.from_cpu()) : 0.0);

      run_on_cuda(queues.cuda(), operands.cuda());
      launch(queues.cpu(), operands.cpu());

      const double rounded = shape.result == kF32 ? 0.0 : largest_magnitude(operands.c.from_cpu());
      CHECK(largest_difference(operands.c) <=
            twin_bound(kF32, shape.k + 1, magnitude) + epsilon(shape.result) * rounded);
      CHECK(operands.c.surroundings_agree());
    }
  }
}

TEST_CASE("the bits of a product do not depend on where operands lie") {
  TwinQueues queues;
  for (const Case& shape : kCases) {
    CAPTURE(shape.m, shape.n, shape.k, name_of(shape.operands));
    Operands expected(queues, shape, {});
    run_on_cuda(queues.cuda(), expected.cuda());
    for (const Placement& placement : kPlacements) {
      CAPTURE(placement.offset, placement.padding);
      Operands operands(queues, shape, placement);

      run_on_cuda(queues.cuda(), operands.cuda());

      CHECK(same_bits(operands.c.from_cuda(), expected.c.from_cuda()));
    }
  }
}

TEST_CASE("one algorithm is chosen for a shape, wherever operands lie, and listed") {
  TwinQueues queues;
  CHECK(matmul_choices(queues.cuda()).empty());
  for (const Placement& placement : kPlacements) {
    const Operands first(queues, kCases[2], placement);
    const Operands second(queues, kCases[7], placement);
    run_on_cuda(queues.cuda(), first.cuda());
    run_on_cuda(queues.cuda(), second.cuda());
    queues.cuda().synchronize();
  }

  const std::string choices = matmul_choices(queues.cuda());

  CHECK(std::count(choices.begin(), choices.end(), '\n') == 2);
  CHECK(choices.find("cuBLASLt ") == 0);
  CHECK(choices.find("\n24x40x64 TN bf16 to f32 accumulating: algorithm ") != std::string::npos);
  CHECK(choices.find("\n33x17x50 NT f32 to f32 accumulating: algorithm ") != std::string::npos);
}

TEST_CASE("a product's scratch on a GPU counts the operands that lie badly") {
  const auto at = [](std::uintptr_t address, long cols, long stride) {
    return Matrix(reinterpret_cast<void*>(address), kBF16, 8, cols, stride);
  };
  MatMul op;
  op.a = at(4096, 16, 16);
  op.b = at(4096, 16, 24);
  op.c = at(4096, 16, 16);
  CHECK(op.cuda_workspace_bytes() == kCublasWorkspaceBytes);

  op.a = at(4096, 16, 20);  // rows start on multiples of 8 only
  CHECK(op.cuda_workspace_bytes() == kCublasWorkspaceBytes + 256);

  op.b = at(4098, 16, 16);
  CHECK(op.cuda_workspace_bytes() == kCublasWorkspaceBytes + 512);

  op.c = at(4100, 18, 22);  // dense rows start no better
  CHECK(op.cuda_workspace_bytes() == kCublasWorkspaceBytes + 512);
}

}  // namespace lockstep
