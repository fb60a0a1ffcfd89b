// Softmax and cross entropy on both devices.
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "operand.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr long kRows = 4;

// Logits with targets, of which row 1 has none, and what becomes of them.
struct Rows {
  Operand logits;
  Operand dlogits;
  TwinArray<std::int32_t> targets;
  TwinArray<float> losses;
  TwinArray<std::int32_t> predictions;
  long classes;
  int blocks;

  Rows(TwinQueues& queues,
       long cols,
       long classes_in,
       int blocks_in,
       DType dtype,
       Placement placement)
      : logits(queues, DType::kF32, kRows, cols, 1, placement, 4.0),
        dlogits(queues, dtype, kRows, cols, 2, placement),
        targets(queues, targets_of(classes_in)),
        losses(queues, std::vector<float>(kRows, -1.0F)),
        predictions(queues, std::vector<std::int32_t>(kRows, -1)),
        classes(classes_in),
        blocks(blocks_in) {}

  static std::vector<std::int32_t> targets_of(long classes) {
    return {0, -1, static_cast<std::int32_t>(classes - 1), static_cast<std::int32_t>(classes / 2)};
  }
  SoftmaxCrossEntropy op(bool on_cuda) {
    SoftmaxCrossEntropy result;
    result.logits = on_cuda ? logits.cuda() : logits.cpu();
    result.num_classes = classes;
    result.blocks = blocks;
    result.targets = on_cuda ? targets.cuda() : targets.cpu();
    result.scale = 0.125F;
    result.dlogits = on_cuda ? dlogits.cuda() : dlogits.cpu();
    result.losses = on_cuda ? losses.cuda() : losses.cpu();
    result.predictions = on_cuda ? predictions.cuda() : predictions.cpu();
    return result;
  }
};

// Sums of up to 64 roundings in a chain, and of arguments of exponentials up to 40.
constexpr long kOperations = 128;

}  // namespace

TEST_CASE("cross entropy on a GPU is that of the CPU: losses, gradients and predictions") {
  TwinQueues queues;
  struct Shape {
    long cols;
    long classes;
    int blocks;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape shape : {Shape{1, 1, 1},
                              {10, 10, 1},
                              {64, 61, 4},
                              {36, 20, 12},
                              {1030, 1027, 1},
                              {2100, 2099, 3}}) {
      for (const Placement placement : kPlacements) {
        CAPTURE(name_of(dtype), shape.cols, shape.blocks, placement.offset);
        Rows rows(queues, shape.cols, shape.classes, shape.blocks, dtype, placement);
        if (shape.cols > 2) {  // two equal largest ones
          rows.logits.set(3, shape.classes - 1, 30.0);
          rows.logits.set(3, 2, 30.0);
          rows.logits.upload();
        }
        launch(queues.cpu(), rows.op(false));

        run_on_cuda(queues.cuda(), rows.op(true));

        const std::vector<float> expected = rows.losses.from_cpu();
        CHECK(largest_difference(rows.losses.from_cuda(), expected) <=
              twin_bound(DType::kF32, kOperations, std::max(1.0, largest_magnitude(expected))));
        CHECK(largest_difference(rows.dlogits) <= twin_bound(dtype, kOperations, 0.125));
        CHECK(rows.dlogits.surroundings_agree());
        CHECK(rows.predictions.from_cuda() == rows.predictions.from_cpu());
      }
    }
  }
}

TEST_CASE("where logits lie changes no bit of cross entropy on a GPU, in place or not") {
  TwinQueues queues;
  std::vector<std::vector<float>> results;
  for (const Placement placement : kPlacements) {
    for (const bool in_place : {false, true}) {
      Rows rows(queues, 2052, 2051, 2, DType::kF32, placement);
      SoftmaxCrossEntropy op = rows.op(true);
      if (in_place) {
        op.dlogits = op.logits;
      }
      run_on_cuda(queues.cuda(), op);
      std::vector<float> all = (in_place ? rows.logits : rows.dlogits).from_cuda();
      const std::vector<float> losses = rows.losses.from_cuda();
      all.insert(all.end(), losses.begin(), losses.end());
      results.push_back(all);
    }
  }
  for (const std::vector<float>& result : results) {
    CHECK(same_bits(result, results.front()));
  }
}

TEST_CASE("evaluation on a GPU needs no gradient and no predictions") {
  TwinQueues queues;
  Rows rows(queues, 100, 97, 2, DType::kBF16, {});
  run_on_cuda(queues.cuda(), rows.op(true));
  const std::vector<float> expected = rows.losses.from_cuda();
  const std::vector<float> gradient = rows.dlogits.from_cuda();
  SoftmaxCrossEntropy op = rows.op(true);
  op.dlogits = {};
  op.predictions = nullptr;

  run_on_cuda(queues.cuda(), op);

  CHECK(same_bits(rows.losses.from_cuda(), expected));
  CHECK(same_bits(rows.dlogits.from_cuda(), gradient));
}

TEST_CASE("a NaN among the logits makes the loss on a GPU NaN") {
  TwinQueues queues;
  Rows rows(queues, 70, 70, 1, DType::kF32, {});
  rows.logits.set(2, 33, std::numeric_limits<double>::quiet_NaN());
  rows.logits.upload();

  run_on_cuda(queues.cuda(), rows.op(true));

  const std::vector<float> losses = rows.losses.from_cuda();
  CHECK(std::isfinite(losses[0]));
  CHECK(std::isnan(losses[2]));
}

TEST_CASE("a vocabulary that is split over ranks has on a GPU the bits of the whole one") {
  TwinQueues queues;
  constexpr long kCols = 136;
  constexpr long kClasses = 131;
  constexpr int kBlocks = 4;
  for (const int parts : {2, 4}) {
    CAPTURE(parts);
    Rows whole(queues, kCols, kClasses, kBlocks, DType::kF32, {});
    run_on_cuda(queues.cuda(), whole.op(true));
    const long own_cols = kCols / parts;
    const int own_blocks = kBlocks / parts;
    const long part_size = kRows * (own_blocks + 1);
    TwinArray<float> maxima(queues, std::vector<float>(static_cast<std::size_t>(parts * kRows)));
    TwinArray<float> largest(queues, std::vector<float>(kRows));
    TwinArray<float> sums(queues, std::vector<float>(static_cast<std::size_t>(parts * part_size)));
    Rows split(queues, kCols, kClasses, kBlocks, DType::kF32, {});
    const auto part_of_rank = [&](int part) {
      SoftmaxCrossEntropy op = split.op(true);
      op.logits = op.logits.columns(part * own_cols, own_cols);
      op.dlogits = op.dlogits.columns(part * own_cols, own_cols);
      op.first_class = part * own_cols;
      op.blocks = own_blocks;
      op.predictions = nullptr;
      return op;
    };
    for (int part = 0; part < parts; ++part) {
      run_on_cuda(queues.cuda(),
                  ClassMaxima{.of = part_of_rank(part), .maxima = maxima.cuda() + part * kRows});
    }
    for (int part = 0; part < parts; ++part) {
      run_on_cuda(queues.cuda(),
                  ClassSums{.of = part_of_rank(part),
                            .maxima = maxima.cuda(),
                            .num_parts = parts,
                            .largest = largest.cuda(),
                            .sums = sums.cuda() + part * part_size});
    }
    for (int part = 0; part < parts; ++part) {
      SoftmaxCrossEntropy op = part_of_rank(part);
      op.statistics = {.parts = parts, .maxima = largest.cuda(), .sums = sums.cuda()};

      run_on_cuda(queues.cuda(), op);

      CHECK(same_bits(split.losses.from_cuda(), whole.losses.from_cuda()));
    }
    CHECK(same_bits(split.dlogits.from_cuda(), whole.dlogits.from_cuda()));
  }
}

TEST_CASE("class maxima and sums on a GPU are those of the CPU") {
  TwinQueues queues;
  Rows rows(queues, 48, 41, 3, DType::kF32, {1, 2});
  TwinArray<float> maxima(queues, std::vector<float>(kRows));
  TwinArray<float> largest(queues, std::vector<float>(kRows));
  TwinArray<float> sums(queues, std::vector<float>(kRows * 4));
  const auto maxima_of = [&](bool on_cuda) {
    return ClassMaxima{.of = rows.op(on_cuda), .maxima = on_cuda ? maxima.cuda() : maxima.cpu()};
  };
  const auto sums_of = [&](bool on_cuda) {
    return ClassSums{.of = rows.op(on_cuda),
                     .maxima = on_cuda ? maxima.cuda() : maxima.cpu(),
                     .num_parts = 1,
                     .largest = on_cuda ? largest.cuda() : largest.cpu(),
                     .sums = on_cuda ? sums.cuda() : sums.cpu()};
  };
  launch(queues.cpu(), maxima_of(false));
  launch(queues.cpu(), sums_of(false));

  run_on_cuda(queues.cuda(), maxima_of(true));
  run_on_cuda(queues.cuda(), sums_of(true));

  CHECK(same_bits(maxima.from_cuda(), maxima.from_cpu()));
  CHECK(same_bits(largest.from_cuda(), largest.from_cpu()));
  const double magnitude = largest_magnitude(sums.from_cpu());
  CHECK(largest_difference(sums.from_cuda(), sums.from_cpu()) <=
        twin_bound(DType::kF32, kOperations, magnitude));
}

TEST_CASE("a rank without classes has on a GPU no maximum and no sum") {
  TwinQueues queues;
  Rows rows(queues, 8, 8, 1, DType::kF32, {});
  TwinArray<float> maxima(queues, std::vector<float>(kRows));
  SoftmaxCrossEntropy op = rows.op(true);
  op.first_class = 8;

  run_on_cuda(queues.cuda(), ClassMaxima{.of = op, .maxima = maxima.cuda()});

  CHECK(maxima.from_cuda()[0] == -std::numeric_limits<float>::infinity());
}

}  // namespace lockstep
