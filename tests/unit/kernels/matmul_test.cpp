#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/aligned_tree.h"
#include "base/error.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/native_bf16.h"
#include "support/catch.h"
#include "support/test_matrix.h"

namespace lockstep {
namespace {

struct Shape {
  long m;
  long n;
  long k;
};

struct Form {
  DType dtype = DType::kF32;
  DType result = DType::kF32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
};

std::vector<Form> all_forms() {
  std::vector<Form> forms;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      forms.push_back({DType::kF32, DType::kF32, transpose_a, transpose_b, false});
      forms.push_back({DType::kF32, DType::kF32, transpose_a, transpose_b, true});
      forms.push_back({DType::kBF16, DType::kBF16, transpose_a, transpose_b, false});
      forms.push_back({DType::kBF16, DType::kF32, transpose_a, transpose_b, false});
      forms.push_back({DType::kBF16, DType::kF32, transpose_a, transpose_b, true});
    }
  }
  return forms;
}

// The operands of one product; `gap` elements lie between rows.
struct Problem {
  Problem(Shape shape, const Form& form, long gap)
      : a(form.dtype,
          form.transpose_a ? shape.k : shape.m,
          form.transpose_a ? shape.m : shape.k,
          (form.transpose_a ? shape.m : shape.k) + gap,
          1),
        b(form.dtype,
          form.transpose_b ? shape.n : shape.k,
          form.transpose_b ? shape.k : shape.n,
          (form.transpose_b ? shape.k : shape.n) + gap,
          2),
        c(form.result, shape.m, shape.n, shape.n + gap, 3) {
    op.a = a.view();
    op.b = b.view();
    op.c = c.view();
    op.transpose_a = form.transpose_a;
    op.transpose_b = form.transpose_b;
    op.accumulate = form.accumulate;
  }

  TestMatrix a;
  TestMatrix b;
  TestMatrix c;
  MatMul op;
};

// Largest error of the product in units of what rounding may cause: k + 1 additions in f32 of
// products below 1 in magnitude, then one rounding of the result.
double worst_error(const Problem& problem, const Problem& before) {
  const MatMul& op = problem.op;
  double worst = 0;
  for (long row = 0; row < op.m(); ++row) {
    for (long col = 0; col < op.n(); ++col) {
      double sum = op.accumulate ? before.c.at(row, col) : 0;
      double magnitude = std::abs(sum);
      for (long i = 0; i < op.k(); ++i) {
        const double left = op.transpose_a ? problem.a.at(i, row) : problem.a.at(row, i);
        const double right = op.transpose_b ? problem.b.at(col, i) : problem.b.at(i, col);
        sum += left * right;
        magnitude += std::abs(left * right);
      }
      const double allowed = static_cast<double>(op.k() + 1) * epsilon(DType::kF32) * magnitude +
                             epsilon(op.c.dtype) * std::abs(sum);
      const double error = std::abs(problem.c.at(row, col) - sum);
      worst = std::max(worst, allowed > 0 ? error / allowed : error);
    }
  }
  return worst;
}

void check_product(Shape shape, const Form& form, long gap) {
  CAPTURE(shape.m, shape.n, shape.k, gap);
  CAPTURE(form.transpose_a, form.transpose_b, form.accumulate);
  CAPTURE(name_of(form.dtype), name_of(form.result));
  CpuQueue queue(1);
  Problem problem(shape, form, gap);
  const Problem before(shape, form, gap);

  launch(queue, problem.op);

  CHECK(worst_error(problem, before) <= 1.0);
  CHECK(problem.c.outside_is_untouched());
}

}  // namespace

TEST_CASE("a product of odd shapes is the sum of products in every form") {
  const std::vector<Shape> shapes = {{1, 1, 1},
                                     {3, 17, 65},
                                     {17, 3, 101},
                                     {65, 101, 33},
                                     {101, 65, 385},
                                     {14, 32, 384},
                                     {2, 129, 5},
                                     {130, 1, 770}};
  for (const Form& form : all_forms()) {
    for (const Shape& shape : shapes) {
      check_product(shape, form, 0);
    }
  }
}

TEST_CASE("a product of views leaves what lies between their rows alone") {
  for (const Form& form : all_forms()) {
    check_product({33, 47, 29}, form, 7);
    check_product({70, 19, 400}, form, 1);
  }
}

TEST_CASE("a product longer than one task of the shorter side is complete") {
  for (const Form& form : all_forms()) {
    check_product({519, 523, 3}, form, 0);
  }
}

TEST_CASE("a product over no inner indices is zero or leaves the sum alone") {
  CpuQueue queue(1);
  const float unused = 0;
  for (const bool accumulate : {false, true}) {
    TestMatrix c(DType::kF32, 5, 37, 4);
    const TestMatrix before(DType::kF32, 5, 37, 4);
    MatMul op;
    op.a = Matrix(const_cast<float*>(&unused), DType::kF32, 5, 0);
    op.b = Matrix(const_cast<float*>(&unused), DType::kF32, 0, 37);
    op.c = c.view();
    op.accumulate = accumulate;

    launch(queue, op);

    CHECK(c.at(4, 36) == (accumulate ? before.at(4, 36) : 0.0));
  }
}

TEST_CASE("the number of threads changes no bit of a product") {
  CpuQueue one(1);
  for (const Form& form : all_forms()) {
    for (const Shape& shape : {Shape{300, 70, 500}, Shape{70, 300, 500}, Shape{257, 255, 31}}) {
      Problem expected(shape, form, 3);
      launch(one, expected.op);
      for (const int threads : {2, 5}) {
        CpuQueue queue(threads);
        Problem problem(shape, form, 3);

        launch(queue, problem.op);

        CHECK(problem.c.same_bits(expected.c));
      }
    }
  }
}

TEST_CASE("where the operands lie changes no bit of a product") {
  CpuQueue queue(2);
  const Shape shape{67, 129, 390};
  for (const Form& form : all_forms()) {
    Problem expected(shape, form, 0);
    launch(queue, expected.op);
    Problem moved(shape, form, 0);
    // Copies of the operands, one element after a multiple of the alignment.
    const auto copy = [&](const Matrix& from, Memory& memory) {
      const std::size_t size = size_of(from.dtype);
      memory = allocate_host(from.bytes() + size);
      std::memcpy(memory.data() + size, from.data, from.bytes());
      return Matrix(memory.data() + size, from.dtype, from.rows, from.cols);
    };
    Memory a;
    Memory b;
    moved.op.a = copy(expected.op.a, a);
    moved.op.b = copy(expected.op.b, b);

    launch(queue, moved.op);

    CHECK(moved.c.same_bits(expected.c));
  }
}

TEST_CASE("a product takes the planned workspace whatever the number of threads") {
  for (const Form& form : all_forms()) {
    Problem problem({200, 90, 800}, form, 0);
    for (const int threads : {1, 2, 5}) {
      CpuQueue queue(threads);
      queue.workspace(problem.op.workspace_bytes());
      queue.seal_workspace();

      CHECK_NOTHROW(launch(queue, problem.op));
    }
  }
}

TEST_CASE("native bf16 products are right for any number of threads, or refused") {
  for (const Form& form : all_forms()) {
    if (form.dtype != DType::kBF16) {
      continue;
    }
    for (const Shape& shape : {Shape{300, 33, 65}, Shape{17, 600, 100}}) {
      const Problem before(shape, form, 5);
      Problem expected(shape, form, 5);
      ThreadPool one(1);
      if (!native_bf16_is_available()) {
        CHECK_THROWS_AS(multiply_native_bf16(one, expected.op), Error);
        continue;
      }
      multiply_native_bf16(one, expected.op);
      CHECK(worst_error(expected, before) <= 1.0);
      CHECK(expected.c.outside_is_untouched());
      for (const int threads : {2, 5}) {
        ThreadPool pool(threads);
        Problem problem(shape, form, 5);

        multiply_native_bf16(pool, problem.op);

        CHECK(problem.c.same_bits(expected.c));
      }
    }
  }
}

TEST_CASE("the implementation's name tells how bf16 products are computed") {
  const std::string name = matmul_implementation_name();

  CHECK(name.find("strips") == 0);
  CHECK((name.find("as f32") != std::string::npos) != native_bf16_is_preferred());
}

TEST_CASE("the cost of a product counts two operations for each inner index") {
  const Problem problem({3, 5, 7}, {}, 0);

  CHECK(problem.op.cost().operations == 2.0 * 3 * 5 * 7);
  CHECK(problem.op.cost().bytes == 4.0 * (3 * 7 + 7 * 5 + 3 * 5));
}

namespace {

float rounded(float value, DType dtype) {
  return dtype == DType::kBF16 ? to_float(to_bfloat16(value)) : value;
}

}  // namespace

TEST_CASE("blocks are combined by the aligned tree, then bias and residual are added") {
  CpuQueue queue(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int count : {1, 2, 3, 6, 7, 64}) {
      for (const bool extras : {false, true}) {
        const long rows = 5;
        const long cols = 37;
        const long stride = 41;
        const TestMatrix blocks(dtype, rows * count, cols, stride, 1);
        const TestMatrix bias(dtype, 1, cols, 2);
        const TestMatrix residual(dtype, rows, cols, stride, 3);
        const TestMatrix out(dtype, rows, cols, stride, 4);
        CombineBlocks op;
        op.blocks = BlockSum(blocks.view().row_range(0, rows), count, rows * stride);
        op.bias = extras ? bias.view() : Matrix();
        op.residual = extras ? residual.view() : Matrix();
        op.out = out.view();

        launch(queue, op);

        long wrong = 0;
        for (long row = 0; row < rows; ++row) {
          for (long col = 0; col < cols; ++col) {
            std::vector<float> leaves;
            for (long block = 0; block < count; ++block) {
              leaves.push_back(static_cast<float>(blocks.at(block * rows + row, col)));
            }
            float sum = tree_sum(leaves);
            if (extras) {
              sum += static_cast<float>(bias.at(0, col));
              sum += static_cast<float>(residual.at(row, col));
            }
            wrong += out.at(row, col) == static_cast<double>(rounded(sum, dtype)) ? 0 : 1;
          }
        }
        CHECK(wrong == 0);
        CHECK(out.outside_is_untouched());
      }
    }
  }
}

}  // namespace lockstep
