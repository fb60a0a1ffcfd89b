// Norms and sums over tokens on both devices.
#include "kernels/norm.h"

#include <vector>

#include "base/integers.h"
#include "kernels/reduce.h"
#include "operand.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr NormKind kKinds[] = {NormKind::kLayer, NormKind::kRms};

// The dtype of a norm and the one of its input's blocks.
struct Types {
  DType dtype = DType::kF32;
  DType blocks = DType::kF32;
};
constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kBF16, DType::kBF16}};

void check(Operand& result, long operations, double magnitude) {
  CHECK(largest_difference(result) <= twin_bound(result.cpu().dtype, operations, magnitude));
  CHECK(result.surroundings_agree());
}

void check(Operand& result, long operations) {
  check(result, operations, largest_magnitude(result.from_cpu()));
}

void check(const TwinArray<float>& found, TwinArray<float>& expected, double bound) {
  CHECK(largest_difference(found.from_cuda(), expected.from_cpu()) <= bound);
}

// One norm forward with all of its operands on both devices.
struct Forward {
  Operand x;
  Operand x_bias;
  Operand residual;
  Operand sum;
  Operand gain;
  Operand bias;
  Operand y;
  TwinArray<float> mean;
  TwinArray<float> rstd;
  NormKind kind;
  int count;

  Forward(TwinQueues& queues,
          Types types,
          NormKind kind_in,
          int count_in,
          long rows,
          long cols,
          Placement p)
      : x(queues, types.blocks, rows * count_in, cols, 1, p, 1.0, 0.5),
        x_bias(queues, types.dtype, 1, cols, 2, p),
        residual(queues, types.dtype, rows, cols, 3, p),
        sum(queues, types.dtype, rows, cols, 4, p),
        gain(queues, types.dtype, 1, cols, 5, p),
        bias(queues, types.dtype, 1, cols, 6, p),
        y(queues, types.dtype, rows, cols, 7, p),
        mean(queues, std::vector<float>(static_cast<std::size_t>(rows))),
        rstd(queues, std::vector<float>(static_cast<std::size_t>(rows))),
        kind(kind_in),
        count(count_in) {}

  NormForward op(bool on_cuda, bool fused) {
    const auto of = [&](Operand& m) { return on_cuda ? m.cuda() : m.cpu(); };
    const Matrix all = of(x);
    const long rows = all.rows / count;
    NormForward result;
    result.kind = kind;
    result.x = BlockSum(all.row_range(0, rows), count, rows * all.stride);
    if (fused) {
      result.x_bias = of(x_bias);
      result.residual = of(residual);
      result.sum = of(sum);
    }
    result.gain = of(gain);
    result.bias = kind == NormKind::kLayer ? of(bias) : Matrix();
    result.y = of(y);
    result.mean = kind == NormKind::kRms ? nullptr : on_cuda ? mean.cuda() : mean.cpu();
    result.rstd = on_cuda ? rstd.cuda() : rstd.cpu();
    return result;
  }
};

}  // namespace

TEST_CASE("a norm on a GPU is that of the CPU, fused with sums or alone") {
  TwinQueues queues;
  for (const Types types : kTypes) {
    for (const NormKind kind : kKinds) {
      for (const int count : {1, 3}) {
        // One warp, several, and 8200 columns of f32 or 16,400 of bf16, which do not fit into registers.
        for (const long cols : {1L, 40L, 77L, 1031L, 8200L, 16'400L}) {
          if (cols > 10'000 && types.dtype == DType::kF32) {
            continue;
          }
          const Placement placement = kPlacements[static_cast<std::size_t>(cols + count) % 3];
          const bool fused = count > 1 || types.dtype != types.blocks || cols % 2 == 1;
          const long rows = cols > 1000 ? 1 : 6;
          CAPTURE(
              name_of(types.dtype), name_of(types.blocks), count, cols, placement.offset, fused);
          Forward norm(queues, types, kind, count, rows, cols, placement);
          launch(queues.cpu(), norm.op(false, fused));

          run_on_cuda(queues.cuda(), norm.op(true, fused));

          CHECK(same_bits(norm.sum.from_cuda(), norm.sum.from_cpu()));
          CHECK(norm.sum.surroundings_agree());
          // A sum of n roundings; the devices' chains are no longer than 64.
          check(norm.y, 64);
          const double magnitude = largest_magnitude(norm.rstd.from_cpu());
          check(norm.rstd, norm.rstd, twin_bound(DType::kF32, 64, magnitude));
          check(norm.mean, norm.mean, twin_bound(DType::kF32, 64, 1.0));
        }
      }
    }
  }
}

TEST_CASE("where operands lie changes no bit of a norm on a GPU") {
  TwinQueues queues;
  for (const Types types : kTypes) {
    for (const long cols : {77L, 1031L}) {
      std::vector<std::vector<float>> results;
      for (const Placement placement : kPlacements) {
        Forward norm(queues, types, NormKind::kLayer, 2, 3, cols, placement);
        run_on_cuda(queues.cuda(), norm.op(true, true));
        results.push_back(norm.y.from_cuda());
        results.push_back(norm.rstd.from_cuda());
      }
      CHECK(same_bits(results[0], results[2]));
      CHECK(same_bits(results[0], results[4]));
      CHECK(same_bits(results[1], results[3]));
      CHECK(same_bits(results[1], results[5]));
    }
  }
}

TEST_CASE("a norm on a GPU has the same bits fused with a sum or after it") {
  TwinQueues queues;
  Forward fused(queues, kTypes[1], NormKind::kLayer, 3, 4, 77, {});
  Forward apart(queues, kTypes[2], NormKind::kLayer, 1, 4, 77, {});
  NormForward op = fused.op(true, true);
  run_on_cuda(queues.cuda(), op);
  const std::vector<float> expected = fused.y.from_cuda();
  op.x = BlockSum(op.sum);
  op.x_bias = {};
  op.residual = {};
  op.sum = {};
  op.y = apart.y.cuda();

  run_on_cuda(queues.cuda(), op);

  CHECK(same_bits(apart.y.from_cuda(), expected));
}

namespace {

struct Backward {
  Operand dy;
  Operand x;
  Operand gain;
  Operand dresidual;
  Operand dx;
  TwinArray<float> mean;
  TwinArray<float> rstd;
  TwinArray<float> dgain;
  TwinArray<float> dbias;
  NormKind kind;
  int count;
  TokenBlocks token_blocks;

  Backward(TwinQueues& queues,
           Types types,
           NormKind kind_in,
           int count_in,
           long rows,
           long cols,
           TokenBlocks blocks,
           Placement p)
      : dy(queues, types.blocks, rows * count_in, cols, 1, p),
        x(queues, types.dtype, rows, cols, 2, p, 1.0, 0.25),
        gain(queues, types.dtype, 1, cols, 3, p),
        dresidual(queues, types.dtype, rows, cols, 4, p),
        dx(queues, types.dtype, rows, cols, 5, p),
        mean(queues, random_values(static_cast<std::size_t>(rows), 6, 0.1)),
        rstd(queues, std::vector<float>(static_cast<std::size_t>(rows), 1.125F)),
        dgain(queues, random_values(static_cast<std::size_t>(cols), 7)),
        dbias(queues, random_values(static_cast<std::size_t>(cols), 8)),
        kind(kind_in),
        count(count_in),
        token_blocks(blocks) {}

  NormBackward op(bool on_cuda, bool with_residual, bool accumulate) {
    const auto of = [&](Operand& m) { return on_cuda ? m.cuda() : m.cpu(); };
    const auto array = [&](TwinArray<float>& m) { return on_cuda ? m.cuda() : m.cpu(); };
    const Matrix all = of(dy);
    const long rows = all.rows / count;
    NormBackward result;
    result.kind = kind;
    result.dy = BlockSum(all.row_range(0, rows), count, rows * all.stride);
    result.x = of(x);
    result.gain = of(gain);
    result.mean = kind == NormKind::kLayer ? array(mean) : nullptr;
    result.rstd = array(rstd);
    result.dresidual = with_residual ? of(dresidual) : Matrix();
    result.dx = with_residual ? of(dresidual) : of(dx);  // in place, which is allowed
    result.dgain = array(dgain);
    result.dbias = kind == NormKind::kLayer ? array(dbias) : nullptr;
    result.accumulate = accumulate;
    result.token_blocks = token_blocks;
    return result;
  }
};

}  // namespace

TEST_CASE("a norm's gradients on a GPU are those of the CPU") {
  TwinQueues queues;
  for (const Types types : kTypes) {
    for (const NormKind kind : kKinds) {
      for (const int count : {1, 3}) {
        // 4100 columns are more than a block has vectors of.
        for (const long cols : {1L, 40L, 77L, 301L, 4100L}) {
          const Placement placement = kPlacements[static_cast<std::size_t>(cols + count) % 3];
          const long rows = cols > 1000 ? 3 : 42;
          const TokenBlocks blocks{.seq_length = rows / 3, .count = cols > 1000 ? 1 : count};
          const bool with_residual = cols % 2 == 1;
          const bool accumulate = count == 3;
          CAPTURE(name_of(types.dtype), name_of(types.blocks), count, cols, placement.offset);
          Backward norm(queues, types, kind, count, rows, cols, blocks, placement);
          launch(queues.cpu(), norm.op(false, with_residual, accumulate));

          run_on_cuda(queues.cuda(), norm.op(true, with_residual, accumulate));

          check(with_residual ? norm.dresidual : norm.dx, 64);
          // Sums of `rows` products of some unit size.
          const double bound = twin_bound(DType::kF32, rows, 4.0 * static_cast<double>(rows));
          check(norm.dgain, norm.dgain, bound);
          check(norm.dbias, norm.dbias, bound);
        }
      }
    }
  }
}

TEST_CASE("where operands lie changes no bit of a norm's gradients on a GPU") {
  TwinQueues queues;
  for (const Types types : kTypes) {
    for (const long cols : {77L, 4100L}) {
      std::vector<std::vector<float>> results;
      for (const Placement placement : kPlacements) {
        const long rows = cols > 1000 ? 2 : 20;
        Backward norm(queues,
                      types,
                      NormKind::kLayer,
                      2,
                      rows,
                      cols,
                      {.seq_length = rows, .count = 1},
                      placement);
        run_on_cuda(queues.cuda(), norm.op(true, false, false));
        std::vector<float> all = norm.dx.from_cuda();
        for (const TwinArray<float>* sums : {&norm.dgain, &norm.dbias}) {
          const std::vector<float> values = sums->from_cuda();
          all.insert(all.end(), values.begin(), values.end());
        }
        results.push_back(all);
      }
      CHECK(same_bits(results[0], results[1]));
      CHECK(same_bits(results[0], results[2]));
    }
  }
}

namespace {

constexpr long kSequences = 3;

// Sums over the tokens [first, first + length) of every sequence of x, which holds whole_length tokens of each.
std::vector<float> sums_of(TwinQueues& queues,
                           const std::vector<float>& values,
                           long cols,
                           TokenBlocks blocks) {
  const long whole = blocks.whole_count > 0 ? blocks.whole_length : blocks.seq_length;
  std::vector<float> own;
  for (long sequence = 0; sequence < kSequences; ++sequence) {
    const auto begin =
        values.begin() +
        (sequence * whole + (blocks.whole_count > 0 ? blocks.first_token : 0)) * cols;
    own.insert(own.end(), begin, begin + blocks.seq_length * cols);
  }
  TwinArray<float> x(queues, own);
  TwinArray<float> out(queues, std::vector<float>(static_cast<std::size_t>(cols), -1.0F));
  ColumnSum op;
  op.x = Matrix(x.cuda(), DType::kF32, kSequences * blocks.seq_length, cols);
  op.out = out.cuda();
  op.token_blocks = blocks;
  run_on_cuda(queues.cuda(), op);
  return out.from_cuda();
}

}  // namespace

TEST_CASE(
    "column sums on a GPU are those of the CPU, within the order that is promised to the bit") {
  TwinQueues queues;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    // Up to 40 pieces: more than a warp's lanes have one of.
    for (const long rows : {1L, 3L, 65L, 202L, 1270L}) {
      for (const long cols : {1L, 17L, 70L}) {
        if (rows > 1000 && cols == 70) {
          continue;
        }
        for (const Placement placement : kPlacements) {
          const bool accumulate = cols != 17;
          CAPTURE(name_of(dtype), rows, cols, placement.offset);
          Operand x(queues, dtype, rows, cols, 1, placement);
          TwinArray<float> out(queues, random_values(static_cast<std::size_t>(cols), 2));
          const auto op = [&](Matrix of, float* to) {
            return ColumnSum{
                .x = of,
                .out = to,
                .accumulate = accumulate,
                .token_blocks = {.seq_length = rows, .count = rows > 60 && rows < 1000 ? 3 : 1}};
          };
          launch(queues.cpu(), op(x.cpu(), out.cpu()));

          run_on_cuda(queues.cuda(), op(x.cuda(), out.cuda()));

          CHECK(same_bits(out.from_cuda(), out.from_cpu()));
        }
      }
    }
  }
}

TEST_CASE("column sums on a GPU count every token once where blocks outnumber tokens") {
  TwinQueues queues;
  Operand x(queues, DType::kF32, 6, 5, 1);
  TwinArray<float> out(queues, std::vector<float>(5));
  const auto op = [&](Matrix of, float* to) {
    return ColumnSum{.x = of, .out = to, .token_blocks = {.seq_length = 3, .count = 8}};
  };
  launch(queues.cpu(), op(x.cpu(), out.cpu()));

  run_on_cuda(queues.cuda(), op(x.cuda(), out.cuda()));

  CHECK(same_bits(out.from_cuda(), out.from_cpu()));
}

TEST_CASE("column sums on a GPU of split sequences combine by the tree to the bits of the whole") {
  TwinQueues queues;
  constexpr long kLength = 47;  // no multiple of the blocks
  constexpr long kCols = 5;
  const std::vector<float> x = random_values(kSequences * kLength * kCols, 1);
  const std::vector<float> expected =
      sums_of(queues, x, kCols, {.seq_length = kLength, .count = 4});

  std::vector<std::vector<float>> halves;
  for (const int rank : {0, 1}) {
    const IndexRange tokens = {part_of(kLength, 4, 2 * rank).begin,
                               part_of(kLength, 4, 2 * rank + 1).end};
    halves.push_back(sums_of(queues,
                             x,
                             kCols,
                             {.seq_length = tokens.size(),
                              .count = 2,
                              .whole_length = kLength,
                              .whole_count = 4,
                              .first_token = tokens.begin,
                              .first_block = 2 * rank}));
  }

  for (std::size_t col = 0; col < kCols; ++col) {
    CHECK(halves[0][col] + halves[1][col] == expected[col]);
  }
}

TEST_CASE(
    "a norm's gradients on a GPU of split sequences combine by the tree to the bits of the whole") {
  TwinQueues queues;
  constexpr long kLength = 22;
  constexpr long kCols = 19;
  Backward whole(queues,
                 kTypes[0],
                 NormKind::kLayer,
                 1,
                 kLength,
                 kCols,
                 {.seq_length = kLength, .count = 4},
                 {});
  NormBackward op = whole.op(true, false, false);
  run_on_cuda(queues.cuda(), op);
  const std::vector<float> expected = whole.dgain.from_cuda();

  std::vector<std::vector<float>> halves;
  for (const int rank : {0, 1}) {
    const IndexRange rows = {part_of(kLength, 4, 2 * rank).begin,
                             part_of(kLength, 4, 2 * rank + 1).end};
    NormBackward half = op;
    half.dy.first = op.dy.first.row_range(rows.begin, rows.size());
    half.x = op.x.row_range(rows.begin, rows.size());
    half.dx = op.dx.row_range(rows.begin, rows.size());
    half.mean = op.mean + rows.begin;
    half.rstd = op.rstd + rows.begin;
    half.token_blocks = {.seq_length = rows.size(),
                         .count = 2,
                         .whole_length = kLength,
                         .whole_count = 4,
                         .first_token = rows.begin,
                         .first_block = 2 * rank};
    run_on_cuda(queues.cuda(), half);
    halves.push_back(whole.dgain.from_cuda());
  }

  for (std::size_t col = 0; col < kCols; ++col) {
    CHECK(halves[0][col] + halves[1][col] == expected[col]);
  }
}

}  // namespace lockstep
