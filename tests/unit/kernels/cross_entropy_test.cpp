#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"
#include "support/test_matrix.h"

namespace lockstep {
namespace {

// Logits of some rows; columns from num_classes on are padding and hold a huge value.
struct Batch {
  Batch(long rows, long classes, long cols, float spread)
      : logits(DType::kF32, rows, cols, cols + 3, 1),
        losses(static_cast<std::size_t>(rows), -1.0F),
        predictions(static_cast<std::size_t>(rows), -1) {
    for (long row = 0; row < rows; ++row) {
      float* values = logits.view().row<float>(row);
      for (long col = 0; col < cols; ++col) {
        values[col] = col < classes ? values[col] * spread : 1e30F;
      }
      targets.push_back(row % 4 == 3 ? -1 : static_cast<std::int32_t>(row * 7 % classes));
    }
    op.logits = logits.view();
    op.num_classes = classes;
    op.targets = targets.data();
    op.losses = losses.data();
    op.predictions = predictions.data();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() = default;

  TestMatrix logits;
  std::vector<float> losses;
  std::vector<std::int32_t> predictions;
  std::vector<std::int32_t> targets;
  SoftmaxCrossEntropy op;
};

struct RowReference {
  explicit RowReference(const Batch& batch, long row) {
    for (long col = 0; col < batch.op.num_classes; ++col) {
      if (batch.logits.at(row, col) > largest) {
        largest = batch.logits.at(row, col);
        prediction = static_cast<std::int32_t>(col);
      }
    }
    for (long col = 0; col < batch.op.num_classes; ++col) {
      sum += std::exp(batch.logits.at(row, col) - largest);
    }
  }
  double largest = -std::numeric_limits<double>::infinity();
  std::int32_t prediction = -1;
  double sum = 0;
};

// The exponentials err by some units of f32 and their sum by one rounding a term and lane.
double relative_tolerance(long classes) {
  return (4.0 + static_cast<double>(classes)) * epsilon(DType::kF32);
}

void check_batch(const Batch& batch, const TestMatrix* gradient) {
  const double tolerance = relative_tolerance(batch.op.num_classes);
  for (long row = 0; row < batch.op.logits.rows; ++row) {
    const auto index = static_cast<std::size_t>(row);
    const RowReference reference(batch, row);
    const long target = batch.targets[index];
    const bool trained = target >= 0;
    const double loss =
        trained ? std::log(reference.sum) + reference.largest - batch.logits.at(row, target) : 0;
    CHECK(std::abs(static_cast<double>(batch.losses[index]) - loss) <=
          tolerance + std::abs(loss) * epsilon(DType::kF32));
    CHECK(batch.predictions[index] == reference.prediction);
    if (gradient == nullptr) {
      continue;
    }
    double worst = 0;
    for (long col = 0; col < batch.op.logits.cols; ++col) {
      double expected = 0;
      if (trained && col < batch.op.num_classes) {
        const double probability =
            std::exp(batch.logits.at(row, col) - reference.largest) / reference.sum;
        expected = (probability - (col == target ? 1 : 0)) * static_cast<double>(batch.op.scale);
      }
      worst = std::max(worst, std::abs(gradient->at(row, col) - expected));
    }
    const double size = static_cast<double>(batch.op.scale);
    CHECK(worst <= size * (tolerance + epsilon(gradient->view().dtype)));
  }
}

}  // namespace

TEST_CASE("losses, gradients and predictions agree with a softmax in f64") {
  CpuQueue queue(2);
  for (const long classes : {1L, 3L, 17L, 65L, 101L, 1000L}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const float spread : {1.0F, 60.0F}) {
        const long cols = classes + 5;
        Batch batch(7, classes, cols, spread);
        const TestMatrix gradient(dtype, 7, cols, cols + 2, 9);
        batch.op.dlogits = gradient.view();
        batch.op.scale = 0.125F;

        launch(queue, batch.op);

        check_batch(batch, &gradient);
        CHECK(gradient.outside_is_untouched());
      }
    }
  }
}

TEST_CASE("padded columns get no gradient and rows that are not trained are zero") {
  CpuQueue queue(1);
  Batch batch(8, 101, 128, 2.0F);
  const TestMatrix gradient(DType::kF32, 8, 128, 9);
  batch.op.dlogits = gradient.view();

  launch(queue, batch.op);

  for (long row = 0; row < 8; ++row) {
    for (long col = 0; col < 128; ++col) {
      if (col >= 101 || row % 4 == 3) {
        CHECK(gradient.at(row, col) == 0.0);
      }
    }
  }
}

TEST_CASE("losses without gradients have the bits of losses with gradients") {
  CpuQueue queue(1);
  Batch with(9, 77, 80, 3.0F);
  const TestMatrix gradient(DType::kF32, 9, 80, 9);
  with.op.dlogits = gradient.view();
  Batch without(9, 77, 80, 3.0F);

  launch(queue, with.op);
  launch(queue, without.op);

  CHECK(same_bits(with.losses, without.losses));
  check_batch(without, nullptr);
}

TEST_CASE("the gradient may overwrite the logits") {
  CpuQueue queue(2);
  Batch apart(9, 77, 80, 3.0F);
  const TestMatrix gradient(DType::kF32, 9, 80, 83, 9);
  apart.op.dlogits = gradient.view();
  Batch in_place(9, 77, 80, 3.0F);
  in_place.op.dlogits = in_place.op.logits;

  launch(queue, apart.op);
  launch(queue, in_place.op);

  CHECK(same_bits(apart.losses, in_place.losses));
  for (long row = 0; row < 9; ++row) {
    for (long col = 0; col < 80; ++col) {
      CHECK(gradient.at(row, col) == in_place.logits.at(row, col));
    }
  }
}

TEST_CASE("blocks of the vocabulary, also one of padding alone, give the same loss") {
  CpuQueue queue(1);
  for (const int blocks : {1, 2, 4}) {
    Batch batch(6, 101, 160, 4.0F);
    batch.op.blocks = blocks;
    const TestMatrix gradient(DType::kF32, 6, 160, 9);
    batch.op.dlogits = gradient.view();

    launch(queue, batch.op);

    check_batch(batch, &gradient);
  }
}

TEST_CASE("the first of equal logits is predicted") {
  CpuQueue queue(1);
  Batch batch(2, 70, 70, 1.0F);
  std::fill_n(batch.op.logits.row<float>(0), 70, 1.5F);
  std::fill_n(batch.op.logits.row<float>(1), 70, -2.0F);
  batch.op.logits.row<float>(1)[33] = 2.0F;
  batch.op.logits.row<float>(1)[69] = 2.0F;

  launch(queue, batch.op);

  CHECK(batch.predictions[0] == 0);
  CHECK(batch.predictions[1] == 33);
}

TEST_CASE("a logit that is not a number makes the loss not a number") {
  CpuQueue queue(1);
  for (const long col : {0L, 5L, 40L, 69L}) {
    Batch batch(1, 70, 70, 1.0F);
    batch.targets[0] = 20;
    batch.op.logits.row<float>(0)[col] = std::numeric_limits<float>::quiet_NaN();

    launch(queue, batch.op);

    CHECK(std::isnan(batch.losses[0]));
  }
}

TEST_CASE("the number of threads changes no bit of losses and gradients") {
  Batch expected(301, 65, 65, 2.0F);
  const TestMatrix expected_gradient(DType::kBF16, 301, 65, 9);
  expected.op.dlogits = expected_gradient.view();
  CpuQueue one(1);
  launch(one, expected.op);
  for (const int threads : {2, 5}) {
    CpuQueue queue(threads);
    Batch batch(301, 65, 65, 2.0F);
    const TestMatrix gradient(DType::kBF16, 301, 65, 9);
    batch.op.dlogits = gradient.view();

    launch(queue, batch.op);

    CHECK(same_bits(batch.losses, expected.losses));
    CHECK(gradient.same_bits(expected_gradient));
  }
}

TEST_CASE("losses are summed in f64") {
  CpuQueue queue(1);
  std::vector<float> losses(1001, 1e-3F);
  losses[0] = 1e6F;  // in f32 the rest would be lost
  double sum = 0;
  LossSum op;
  op.losses = losses.data();
  op.count = 1001;
  op.sum = &sum;

  launch(queue, op);

  const double expected = 1e6 + 1000 * static_cast<double>(1e-3F);
  CHECK(std::abs(sum - expected) <= 1001 * epsilon(DType::kF64) * expected);
}

}  // namespace lockstep
