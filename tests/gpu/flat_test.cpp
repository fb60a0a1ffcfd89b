// Kernels over ranges of flat buffers, on both devices.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/integers.h"
#include "kernels/cross_entropy.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "operand.h"
#include "support/catch.h"

namespace lockstep {
namespace {

// Elements that are no multiple of a vector, and starts that are not aligned to one.
constexpr long kCount = 1037;
constexpr std::array<long, 3> kStarts = {0, 1, 3};

// Magnitudes so far apart that a sum in f64 in another order has other bits.
std::vector<float> uneven_values(std::size_t count, std::uint64_t site) {
  std::vector<float> values = random_values(count, site);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] *= std::ldexp(1.0F, static_cast<int>(i * 7 % 61));
  }
  return values;
}

std::vector<float> as_floats(const std::vector<BFloat16>& values) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const BFloat16 value : values) {
    floats.push_back(to_float(value));
  }
  return floats;
}

}  // namespace

TEST_CASE("filling with zeros writes its bytes and no others") {
  TwinQueues queues;
  TwinArray<float> data(queues, random_values(100, 1));

  run_on_cuda(queues.cuda(), FillZero{.data = data.cuda() + 3, .bytes = 7 * sizeof(float)});
  launch(queues.cpu(), FillZero{.data = data.cpu() + 3, .bytes = 7 * sizeof(float)});

  CHECK(same_bits(data.from_cuda(), data.from_cpu()));
  CHECK(data.from_cuda()[5] == 0.0F);
}

TEST_CASE("a cast on a GPU has the bits of the CPU's, ties included") {
  TwinQueues queues;
  std::vector<float> values = random_values(kCount + 3, 1);
  values[0] = 1.0F + 0x1p-8F;  // a tie down
  values[1] = 1.0F + 0x3p-8F;  // a tie up
  values[2] = 3.4e38F;         // to infinity
  values[3] = 0x1p-140F;       // subnormal
  values[4] = -std::numeric_limits<float>::infinity();
  const std::vector<BFloat16> empty(kCount + 3);
  for (const long start : kStarts) {
    TwinArray<float> from(queues, values);
    TwinArray<BFloat16> to(queues, empty);
    CastToBFloat16 op;
    op.count = kCount;
    op.from = from.cpu() + start;
    op.to = to.cpu() + start;
    launch(queues.cpu(), op);
    op.from = from.cuda() + start;
    op.to = to.cuda() + start;

    run_on_cuda(queues.cuda(), op);

    CHECK(same_bits(as_floats(to.from_cuda()), as_floats(to.from_cpu())));
  }
}

TEST_CASE("a cast of NaN on a GPU is NaN") {
  TwinQueues queues;
  TwinArray<float> from(queues, {std::numeric_limits<float>::quiet_NaN()});
  TwinArray<BFloat16> to(queues, {BFloat16{}});

  run_on_cuda(queues.cuda(), CastToBFloat16{.from = from.cuda(), .to = to.cuda(), .count = 1});

  CHECK(std::isnan(to_float(to.from_cuda()[0])));
}

TEST_CASE("squared sums on a GPU have the CPU's bits") {
  TwinQueues queues;
  constexpr long kChunks = 3;
  TwinArray<float> x(queues, uneven_values(kChunks * kChunkElements + 1, 1));
  TwinArray<double> sums(queues, std::vector<double>(kChunks));
  SquaredSums op;
  op.count = kChunks * kChunkElements;
  op.x = x.cpu() + 1;
  op.chunk_sums = sums.cpu();
  launch(queues.cpu(), op);
  op.x = x.cuda() + 1;
  op.chunk_sums = sums.cuda();

  run_on_cuda(queues.cuda(), op);

  CHECK(same_bits(sums.from_cuda(), sums.from_cpu()));
}

TEST_CASE("a sum of losses on a GPU is in index order") {
  TwinQueues queues;
  for (const long count : {0L, 1L, 33L, 4099L}) {
    TwinArray<float> values(queues, uneven_values(static_cast<std::size_t>(count), 1));
    TwinArray<double> sum(queues, {-1.0});
    launch(queues.cpu(), LossSum{.losses = values.cpu(), .count = count, .sum = sum.cpu()});

    run_on_cuda(queues.cuda(), LossSum{.losses = values.cuda(), .count = count, .sum = sum.cuda()});

    CHECK(same_bits(sum.from_cuda(), sum.from_cpu()));
  }
}

namespace {

// `pieces` launches over parts of the range; the last output is the first input.
void sum_trees(TwinQueues& queues,
               std::vector<TwinArray<float>>& inputs,
               TwinArray<float>& out,
               long start,
               long pieces,
               bool on_cuda) {
  const auto end = [&](auto&& of, long at) { return (on_cuda ? of.cuda() : of.cpu()) + at; };
  for (long piece = 0; piece < pieces; ++piece) {
    const IndexRange range = part_of(kCount, pieces, piece);
    std::vector<const float*> from;
    from.reserve(inputs.size());
    for (auto& input : inputs) {
      from.push_back(end(input, start + range.begin));
    }
    std::array<float*, 2> to = {end(out, range.begin), end(inputs[0], start + range.begin)};
    SumTree op;
    op.inputs = from.data();
    op.num_inputs = static_cast<int>(from.size());
    op.outputs = to.data();
    op.num_outputs = 2;
    op.count = range.size();
    if (on_cuda) {
      run_on_cuda(queues.cuda(), op);
    } else {
      launch(queues.cpu(), op);
    }
  }
}

}  // namespace

TEST_CASE("tree sums on a GPU have the CPU's bits, wherever the range is cut") {
  TwinQueues queues;
  // 70 inputs are several levels of groups, 300 are more than a kernel's parameters hold.
  for (const int num_inputs : {1, 2, 3, 5, 8, 9, 70, 300}) {
    for (const long start : kStarts) {
      if (num_inputs > 70 && start > 0) {
        continue;
      }
      std::vector<TwinArray<float>> inputs;
      inputs.reserve(static_cast<std::size_t>(num_inputs));
      for (int input = 0; input < num_inputs; ++input) {
        inputs.emplace_back(queues, random_values(kCount + 3, static_cast<std::uint64_t>(input)));
      }
      TwinArray<float> out(queues, std::vector<float>(kCount));
      CAPTURE(num_inputs, start);
      sum_trees(queues, inputs, out, start, 1, false);

      sum_trees(queues, inputs, out, start, num_inputs > 70 ? 1 : 3, true);

      CHECK(same_bits(out.from_cuda(), out.from_cpu()));
      CHECK(same_bits(inputs[0].from_cuda(), inputs[0].from_cpu()));
    }
  }
}

namespace {

struct Weights {
  TwinArray<float> parameter;
  TwinArray<float> first;
  TwinArray<float> second;
  TwinArray<float> gradient;
  TwinArray<BFloat16> compute;

  explicit Weights(TwinQueues& queues)
      : parameter(queues, random_values(kCount + 3, 1)),
        first(queues, random_values(kCount + 3, 2, 0.01)),
        second(queues, squares(random_values(kCount + 3, 3, 0.01))),
        gradient(queues, random_values(kCount + 3, 4, 0.1)),
        compute(queues, std::vector<BFloat16>(kCount + 3)) {}

  static std::vector<float> squares(std::vector<float> values) {
    for (float& value : values) {
      value *= value;
    }
    return values;
  }
};

AdamW adamw_of(Weights& weights, long first, long count, bool narrow, bool on_cuda) {
  const auto at = [&](auto& of) { return (on_cuda ? of.cuda() : of.cpu()) + first; };
  AdamW op;
  op.count = count;
  op.parameter = at(weights.parameter);
  op.first_moment = at(weights.first);
  op.second_moment = at(weights.second);
  op.gradient = at(weights.gradient);
  op.compute_bf16 = narrow ? at(weights.compute) : nullptr;
  op.lr = 1e-3;
  op.weight_decay = 0.1;
  op.correction1 = 1 - 0.9 * 0.9;
  op.correction2 = 1 - 0.95 * 0.95;
  op.gradient_scale = 0.25F;
  return op;
}

Sgd sgd_of(Weights& weights, long first, long count, bool narrow, bool momentum, bool on_cuda) {
  const auto at = [&](auto& of) { return (on_cuda ? of.cuda() : of.cpu()) + first; };
  Sgd op;
  op.count = count;
  op.parameter = at(weights.parameter);
  op.velocity = momentum ? at(weights.first) : nullptr;
  op.gradient = at(weights.gradient);
  op.compute_bf16 = narrow ? at(weights.compute) : nullptr;
  op.lr = 0.1;
  op.momentum = momentum ? 0.9 : 0;
  op.weight_decay = 0.01;
  op.gradient_scale = 0.25F;
  return op;
}

// The largest difference between the devices, relative to the largest value.
double relative_difference(TwinArray<float>& array) {
  return largest_difference(array.from_cuda(), array.from_cpu()) /
         largest_magnitude(array.from_cpu());
}

void check_weights(Weights& weights) {
  const double bound = twin_bound(DType::kF32, 6, 1.0);
  CHECK(relative_difference(weights.parameter) <= bound);
  CHECK(relative_difference(weights.first) <= bound);
  CHECK(relative_difference(weights.second) <= bound);
  CHECK(largest_difference(as_floats(weights.compute.from_cuda()),
                           as_floats(weights.compute.from_cpu())) <=
        twin_bound(DType::kBF16, 6, largest_magnitude(weights.parameter.from_cpu())));
}

}  // namespace

TEST_CASE("AdamW on a GPU updates as on the CPU, and cutting the range leaves the bits") {
  TwinQueues queues;
  for (const long start : kStarts) {
    for (const bool narrow : {false, true}) {
      CAPTURE(start, narrow);
      Weights whole(queues);
      Weights cut(queues);
      launch(queues.cpu(), adamw_of(whole, start, kCount, narrow, false));

      run_on_cuda(queues.cuda(), adamw_of(whole, start, kCount, narrow, true));
      run_on_cuda(queues.cuda(), adamw_of(cut, start, 111, narrow, true));
      run_on_cuda(queues.cuda(), adamw_of(cut, start + 111, kCount - 111, narrow, true));

      check_weights(whole);
      CHECK(same_bits(whole.parameter.from_cuda(), cut.parameter.from_cuda()));
      CHECK(same_bits(whole.first.from_cuda(), cut.first.from_cuda()));
      CHECK(same_bits(whole.second.from_cuda(), cut.second.from_cuda()));
      CHECK(same_bits(as_floats(whole.compute.from_cuda()), as_floats(cut.compute.from_cuda())));
    }
  }
}

TEST_CASE("SGD on a GPU updates as on the CPU, and cutting the range leaves the bits") {
  TwinQueues queues;
  for (const long start : kStarts) {
    for (const bool momentum : {false, true}) {
      const bool narrow = start != 1;
      CAPTURE(start, momentum);
      Weights whole(queues);
      Weights cut(queues);
      launch(queues.cpu(), sgd_of(whole, start, kCount, narrow, momentum, false));

      run_on_cuda(queues.cuda(), sgd_of(whole, start, kCount, narrow, momentum, true));
      run_on_cuda(queues.cuda(), sgd_of(cut, start, 111, narrow, momentum, true));
      run_on_cuda(queues.cuda(), sgd_of(cut, start + 111, kCount - 111, narrow, momentum, true));

      check_weights(whole);
      CHECK(same_bits(whole.parameter.from_cuda(), cut.parameter.from_cuda()));
      CHECK(same_bits(whole.first.from_cuda(), cut.first.from_cuda()));
      CHECK(same_bits(as_floats(whole.compute.from_cuda()), as_floats(cut.compute.from_cuda())));
    }
  }
}

}  // namespace lockstep
