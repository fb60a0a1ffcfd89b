#include "kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "base/aligned_tree.h"
#include "device/cpu/cpu_queue.h"
#include "support/catch.h"
#include "support/kernel_matrix.h"
#include "unit/kernels/norm_reference.h"

namespace lockstep {
namespace {

struct Case {
  NormKind kind;
  DType dtype;
  long rows;
  long cols;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const long rows : {1L, 3L, 7L}) {
        for (const long cols : {1L, 5L, 72L, 101L, 384L}) {
          cases.push_back({kind, dtype, rows, cols});
        }
      }
    }
  }
  return cases;
}

std::vector<double> row_of(const KernelMatrix& matrix, long row) {
  std::vector<double> values;
  for (long c = 0; c < matrix.cols(); ++c) {
    values.push_back(matrix.at(row, c));
  }
  return values;
}

ReferenceNorm reference_of(NormKind kind, const KernelMatrix& gain, const KernelMatrix& bias) {
  ReferenceNorm reference;
  reference.kind = kind;
  reference.gain = row_of(gain, 0);
  reference.bias = row_of(bias, 0);
  return reference;
}

double round_f32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

// The sum of the blocks' elements, additions in f32 in tree order, rounded to the dtype at the end.
double tree_sum_at(const std::vector<KernelMatrix>& blocks, long row, long col) {
  std::vector<float> values;
  for (const KernelMatrix& block : blocks) {
    values.push_back(static_cast<float>(block.at(row, col)));
  }
  return static_cast<double>(tree_sum(values));
}

double round_to(DType dtype, double value) {
  KernelMatrix one(dtype, 1, 1);
  one.set(0, 0, value);
  return one.at(0, 0);
}

// `count` matrices as the blocks of one BlockSum: copies of them lie behind one another.
struct Blocks {
  std::vector<KernelMatrix> parts;
  KernelMatrix together;
  BlockSum sum;

  Blocks(DType dtype, int count, long rows, long cols)
      : together(dtype, count * rows, cols, 4),
        sum(together.view().row_range(0, rows), count, rows * together.view().stride) {
    together.fill_normal(5);
    for (int block = 0; block < count; ++block) {
      parts.emplace_back(dtype, rows, cols);
      for (long r = 0; r < rows; ++r) {
        for (long c = 0; c < cols; ++c) {
          parts.back().set(r, c, together.at(block * rows + r, c));
        }
      }
    }
  }
};

// Roundings of a normalised value: of the sums over the row, and of a few operations more.
long operations_of(long cols) {
  return cols + 8;
}

// A mean is off by roundings of |x|; how far that moves a normalised value.
double normal_error(const KernelMatrix& x, double rstd) {
  return rounding_bound(DType::kF32, operations_of(x.cols()), x.largest() * rstd + 1);
}

}  // namespace

TEST_CASE("norms match the formula in f64") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const Case& c : all_cases()) {
      CAPTURE(static_cast<int>(c.kind), name_of(c.dtype), c.rows, c.cols);
      const KernelMatrix x = KernelMatrix(c.dtype, c.rows, c.cols).fill_normal(1, 2.0, 3.0);
      const KernelMatrix gain = KernelMatrix(c.dtype, 1, c.cols).fill_normal(2, 0.1, 1.0);
      const KernelMatrix bias = KernelMatrix(c.dtype, 1, c.cols).fill_normal(3);
      const KernelMatrix y(c.dtype, c.rows, c.cols, 6);
      const KernelMatrix mean(DType::kF32, 1, c.rows);
      const KernelMatrix rstd(DType::kF32, 1, c.rows);
      NormForward op;
      op.kind = c.kind;
      op.x = BlockSum(x.view());
      op.gain = gain.view();
      op.bias = bias.view();
      op.y = y.view();
      op.mean = mean.view().as<float>();
      op.rstd = rstd.view().as<float>();

      launch(queue, op);

      ReferenceNorm reference = reference_of(c.kind, gain, bias);
      for (long row = 0; row < c.rows; ++row) {
        const std::vector<double> expected = reference.forward(row_of(x, row));
        const double error = normal_error(x, reference.rstd);
        for (long col = 0; col < c.cols; ++col) {
          const double bound = error * gain.largest() + rounding_bound(c.dtype, 2, y.largest());
          CHECK(std::abs(y.at(row, col) - expected[static_cast<std::size_t>(col)]) <= bound);
        }
        CHECK(std::abs(mean.at(0, row) - reference.mean) <= error / reference.rstd);
        CHECK(std::abs(rstd.at(0, row) - reference.rstd) <= 4 * error * reference.rstd);
      }
      CHECK(y.guards_intact());
      CHECK(mean.guards_intact());
      CHECK(rstd.guards_intact());
    }
  });
}

TEST_CASE("a norm keeps the rounded tree sum of its blocks, the bias and the residual") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const int count : {1, 2, 3, 5, 7, 64}) {
      for (const auto& types : {std::pair{DType::kF32, DType::kF32},
                                std::pair{DType::kBF16, DType::kBF16},
                                std::pair{DType::kF32, DType::kBF16}}) {
        const DType partial = types.first;
        const DType dtype = types.second;
        CAPTURE(count, name_of(partial), name_of(dtype));
        const long rows = 3;
        const long cols = 37;
        const Blocks blocks(partial, count, rows, cols);
        const KernelMatrix x_bias = KernelMatrix(dtype, 1, cols).fill_normal(6);
        const KernelMatrix residual = KernelMatrix(dtype, rows, cols, 2).fill_normal(7);
        const KernelMatrix sum = residual;  // in place
        const KernelMatrix gain = KernelMatrix(dtype, 1, cols).fill_normal(8);
        const KernelMatrix y(dtype, rows, cols);
        const KernelMatrix unfused(dtype, rows, cols);
        NormForward op;
        op.x = blocks.sum;
        op.x_bias = x_bias.view();
        op.residual = op.sum = sum.view();
        op.gain = gain.view();
        op.y = y.view();

        launch(queue, op);
        NormForward plain;
        plain.x = BlockSum(sum.view());
        plain.gain = op.gain;
        plain.y = unfused.view();
        launch(queue, plain);

        CHECK(largest_difference(sum, [&](long row, long col) {
                const double with_bias =
                    round_f32(tree_sum_at(blocks.parts, row, col) + x_bias.at(0, col));
                return round_to(dtype, round_f32(with_bias + residual.at(row, col)));
              }) == 0);
        CHECK(largest_difference(y, [&](long row, long col) { return unfused.at(row, col); }) == 0);
        CHECK(sum.guards_intact());
      }
    }
  });
}

TEST_CASE("a norm of values far from zero keeps their variance") {
  CpuQueue queue(1);
  KernelMatrix x(DType::kF32, 1, 64);
  for (long i = 0; i < 64; ++i) {
    x.set(0, i, 1e5 + (i % 2 == 0 ? 0.5 : -0.5));
  }
  KernelMatrix gain(DType::kF32, 1, 64);
  for (long i = 0; i < 64; ++i) {
    gain.set(0, i, 1.0);
  }
  const KernelMatrix y(DType::kF32, 1, 64);
  NormForward op;
  op.x = BlockSum(x.view());
  op.gain = gain.view();
  op.y = y.view();

  launch(queue, op);

  const double expected = 0.5 / std::sqrt(0.25 + 1e-5);
  CHECK(std::abs(y.at(0, 0) - expected) <= rounding_bound(DType::kF32, 8, expected));
  CHECK(y.at(0, 1) == -y.at(0, 0));
}

TEST_CASE("norm gradients match the f64 reference, in place of dy and of the residual's") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const Case& c : all_cases()) {
      CAPTURE(static_cast<int>(c.kind), name_of(c.dtype), c.rows, c.cols);
      const bool layer = c.kind == NormKind::kLayer;
      const KernelMatrix x = KernelMatrix(c.dtype, c.rows, c.cols).fill_normal(1, 2.0, 1.0);
      const KernelMatrix gain = KernelMatrix(c.dtype, 1, c.cols).fill_normal(2, 0.1, 1.0);
      const KernelMatrix dy = KernelMatrix(c.dtype, c.rows, c.cols, 8).fill_normal(4);
      const KernelMatrix residual = KernelMatrix(c.dtype, c.rows, c.cols, 8).fill_normal(9);
      KernelMatrix mean(DType::kF32, 1, c.rows);
      KernelMatrix rstd(DType::kF32, 1, c.rows);
      const KernelMatrix dgain = KernelMatrix(DType::kF32, 1, c.cols).fill_normal(10);
      const KernelMatrix dbias = KernelMatrix(DType::kF32, 1, c.cols);
      const KernelMatrix gain_before = dgain;
      ReferenceNorm reference = reference_of(c.kind, gain, gain);
      for (long row = 0; row < c.rows; ++row) {
        reference.normalise(row_of(x, row));
        mean.set(0, row, reference.mean);
        rstd.set(0, row, reference.rstd);
      }
      const KernelMatrix in_place_of_dy = dy;
      const KernelMatrix in_place_of_residual = residual;
      NormBackward op;
      op.kind = c.kind;
      op.x = x.view();
      op.gain = gain.view();
      op.mean = layer ? mean.view().as<float>() : nullptr;
      op.rstd = rstd.view().as<float>();
      op.dgain = dgain.view().as<float>();
      op.dbias = layer ? dbias.view().as<float>() : nullptr;
      op.accumulate = true;
      op.token_blocks = {c.rows, 1};

      op.dy = BlockSum(dy.view());
      op.dresidual = op.dx = in_place_of_residual.view();
      launch(queue, op);
      const KernelMatrix once = dgain;
      op.dy = BlockSum(in_place_of_dy.view());
      op.dresidual = residual.view();
      op.dx = in_place_of_dy.view();
      launch(queue, op);

      double largest_rstd = 0;
      std::vector<double> expected_gain(static_cast<std::size_t>(c.cols), 0.0);
      std::vector<double> expected_bias = expected_gain;
      std::vector<std::vector<double>> expected;
      for (long row = 0; row < c.rows; ++row) {
        expected.push_back(reference.backward(row_of(x, row), row_of(dy, row)));
        largest_rstd = std::max(largest_rstd, reference.rstd);
        const std::vector<double> normal = reference.normalise(row_of(x, row));
        for (long col = 0; col < c.cols; ++col) {
          const auto i = static_cast<std::size_t>(col);
          expected_gain[i] += dy.at(row, col) * normal[i];
          expected_bias[i] += dy.at(row, col);
        }
      }
      const double error = normal_error(x, largest_rstd) + rounding_bound(DType::kF32, 8, 1);
      const double largest_normal = std::sqrt(static_cast<double>(c.cols));
      const double of_dx =
          error * largest_rstd * dy.largest() * gain.largest() * 4 * (1 + largest_normal);
      CHECK(largest_difference(in_place_of_dy, [&](long row, long col) {
              return residual.at(row, col) +
                     expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(col)];
            }) <= of_dx + rounding_bound(c.dtype, 2, in_place_of_dy.largest()));
      CHECK(in_place_of_dy == in_place_of_residual);
      const double of_sums = static_cast<double>(c.rows + 1) * dy.largest() * error +
                             rounding_bound(DType::kF32, c.rows + 2, once.largest());
      CHECK(largest_difference(once, [&](long, long col) {
              return gain_before.at(0, col) + expected_gain[static_cast<std::size_t>(col)];
            }) <= of_sums);
      CHECK(largest_difference(dbias, [&](long, long col) {
              return layer ? 2 * expected_bias[static_cast<std::size_t>(col)] : 0.0;
            }) <= 2 * of_sums);
      CHECK(in_place_of_dy.guards_intact());
      CHECK(dgain.guards_intact());
      CHECK(dbias.guards_intact());
    }
  });
}

TEST_CASE("the norm reference's gradient matches finite differences") {
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    const KernelMatrix values = KernelMatrix(DType::kF32, 3, 9).fill_normal(1);
    ReferenceNorm reference;
    reference.kind = kind;
    reference.gain = row_of(values, 1);
    reference.bias = reference.gain;
    std::vector<double> x = row_of(values, 0);
    const std::vector<double> dy = row_of(values, 2);
    const auto loss = [&] {
      const std::vector<double> y = reference.forward(x);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        sum += y[i] * dy[i];
      }
      return sum;
    };
    const std::vector<double> dx = reference.backward(x, dy);
    constexpr double kStep = 1e-5;
    const double tolerance = 100 * (kStep * kStep + epsilon(DType::kF64) / kStep);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] += kStep;
      const double above = loss();
      x[i] -= 2 * kStep;
      const double below = loss();
      x[i] += kStep;
      CHECK(std::abs((above - below) / (2 * kStep) - dx[i]) <= tolerance);
    }
  }
}

namespace {

// dgain and dbias of sequences of `seq_length` tokens, columns [0, cols) of the result.
struct NormGradients {
  KernelMatrix dx;
  KernelMatrix dgain;
  KernelMatrix dbias;

  NormGradients(int threads, const Blocks& dy, const KernelMatrix& x, TokenBlocks token_blocks)
      : dx(x.dtype(), x.rows(), x.cols()),
        dgain(DType::kF32, 1, x.cols()),
        dbias(DType::kF32, 1, x.cols()) {
    CpuQueue queue(threads);
    const KernelMatrix gain = KernelMatrix(x.dtype(), 1, x.cols()).fill_normal(2);
    const std::vector<float> mean(static_cast<std::size_t>(x.rows()), 0.25F);
    const std::vector<float> rstd(static_cast<std::size_t>(x.rows()), 0.75F);
    NormBackward op;
    op.dy = dy.sum;
    op.x = x.view();
    op.gain = gain.view();
    op.mean = mean.data();
    op.rstd = rstd.data();
    op.dx = dx.view();
    op.dgain = dgain.view().as<float>();
    op.dbias = dbias.view().as<float>();
    op.token_blocks = token_blocks;
    launch(queue, op);
  }
};

}  // namespace

TEST_CASE("norm gradients have the same bits for any number of threads") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const KernelMatrix x = KernelMatrix(dtype, 4 * 75, 72).fill_normal(1);
    const Blocks dy(dtype, 3, 4 * 75, 72);
    const NormGradients expected(1, dy, x, {75, 3});
    for (const int threads : {2, 5}) {
      const NormGradients found(threads, dy, x, {75, 3});
      CHECK(found.dx == expected.dx);
      CHECK(found.dgain == expected.dgain);
      CHECK(found.dbias == expected.dbias);
    }
  }
}

TEST_CASE("token blocks computed apart and added as a tree give the bits of the whole") {
  const long sequences = 3;
  const long seq_length = 100;
  const long cols = 21;
  const KernelMatrix x = KernelMatrix(DType::kF32, sequences * seq_length, cols).fill_normal(1);
  const Blocks dy(DType::kF32, 1, sequences * seq_length, cols);
  const NormGradients whole(1, dy, x, {seq_length, 4});
  std::vector<NormGradients> halves;
  for (long half = 0; half < 2; ++half) {
    const long tokens = seq_length / 2;
    KernelMatrix part_x(DType::kF32, sequences * tokens, cols);
    Blocks part_dy(DType::kF32, 1, sequences * tokens, cols);
    for (long row = 0; row < part_x.rows(); ++row) {
      const long from = row / tokens * seq_length + half * tokens + row % tokens;
      for (long col = 0; col < cols; ++col) {
        part_x.set(row, col, x.at(from, col));
        part_dy.together.set(row, col, dy.together.at(from, col));
      }
    }
    halves.emplace_back(1, part_dy, part_x, TokenBlocks{tokens, 2});
  }

  CHECK(largest_difference(whole.dgain, [&](long, long col) {
          return round_f32(halves[0].dgain.at(0, col) + halves[1].dgain.at(0, col));
        }) == 0);
  CHECK(largest_difference(whole.dbias, [&](long, long col) {
          return round_f32(halves[0].dbias.at(0, col) + halves[1].dbias.at(0, col));
        }) == 0);
}

}  // namespace lockstep
