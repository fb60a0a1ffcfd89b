#include "kernels/dropout.h"

#include <limits>

#include "device/cpu/cpu_queue.h"
#include "support/catch.h"
#include "support/kernel_matrix.h"

namespace lockstep {
namespace {

constexpr DropoutSource kSource{
    .probability = 0.4, .seed = 11, .step = 3, .site = DropoutSite::kFeedForward, .layer = 1};
constexpr SampleRows kRows{.first_sample = 6, .tokens = 4, .first_token = 9};

double expected_at(const KernelMatrix& x, long row, long col) {
  const float factor = kSource.mask().factor(
      kRows.first_sample + row / kRows.tokens, kRows.first_token + row % kRows.tokens, col);
  KernelMatrix rounded(x.dtype(), 1, 1);
  rounded.set(0, 0, static_cast<double>(static_cast<float>(x.at(row, col)) * factor));
  return rounded.at(0, 0);
}

}  // namespace

TEST_CASE("dropout multiplies every element by its factor and rounds once") {
  for_each_instruction_set([] {
    CpuQueue queue(3);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const long cols : {1L, 3L, 8L, 31L, 32L, 33L, 130L, 3000L}) {
        CAPTURE(cols, name_of(dtype));
        const KernelMatrix x = KernelMatrix(dtype, 3 * kRows.tokens, cols).fill_normal(1);
        const KernelMatrix y(dtype, x.rows(), cols, 7);

        launch(queue, Dropout{.source = kSource, .rows = kRows, .x = x.view(), .y = y.view()});

        CHECK(largest_difference(y, [&](long row, long col) { return expected_at(x, row, col); }) ==
              0);
        CHECK(y.guards_intact());
        const KernelMatrix in_place = x;
        launch(
            queue,
            Dropout{.source = kSource, .rows = kRows, .x = in_place.view(), .y = in_place.view()});
        CHECK(largest_difference(in_place, [&](long row, long col) { return y.at(row, col); }) ==
              0);
      }
    }
  });
}

TEST_CASE("a part of the rows and tokens gives the bits that all of them get") {
  CpuQueue queue(1);
  const KernelMatrix x = KernelMatrix(DType::kF32, 3 * kRows.tokens, 37).fill_normal(1);
  const KernelMatrix all(DType::kF32, x.rows(), 37);
  const KernelMatrix part(DType::kF32, 2, 37);
  launch(queue, Dropout{.source = kSource, .rows = kRows, .x = x.view(), .y = all.view()});

  // Tokens 2 and 3 of the second sample.
  launch(queue,
         Dropout{.source = kSource,
                 .rows = {.first_sample = kRows.first_sample + 1,
                          .tokens = 2,
                          .first_token = kRows.first_token + 2},
                 .x = x.view().row_range(6, 2),
                 .y = part.view()});

  CHECK(largest_difference(part, [&](long row, long col) { return all.at(6 + row, col); }) == 0);
}

TEST_CASE("what is dropped becomes zero whatever it is") {
  for_each_instruction_set([] {
    CpuQueue queue(1);
    KernelMatrix x(DType::kF32, kRows.tokens, 70);
    for (long row = 0; row < x.rows(); ++row) {
      for (long col = 0; col < x.cols(); ++col) {
        x.set(row, col, std::numeric_limits<double>::infinity());
      }
    }

    launch(queue, Dropout{.source = kSource, .rows = kRows, .x = x.view(), .y = x.view()});

    long wrong = 0;
    for (long row = 0; row < x.rows(); ++row) {
      for (long col = 0; col < x.cols(); ++col) {
        const float factor =
            kSource.mask().factor(kRows.first_sample, kRows.first_token + row, col);
        const double expected = factor == 0.0F ? 0 : std::numeric_limits<double>::infinity();
        wrong += x.at(row, col) == expected ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  });
}

}  // namespace lockstep
