#include "kernels/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/aligned_tree.h"
#include "support/catch.h"
#include "support/test_matrix.h"

namespace lockstep {
namespace {

std::vector<float> sum_columns(
    const TestMatrix& x, TokenBlocks blocks, int threads, bool accumulate, float start) {
  CpuQueue queue(threads);
  std::vector<float> out(static_cast<std::size_t>(x.view().cols), start);
  ColumnSum op;
  op.x = x.view();
  op.out = out.data();
  op.accumulate = accumulate;
  op.token_blocks = blocks;
  queue.workspace(op.workspace_bytes());
  queue.seal_workspace();
  launch(queue, op);
  return out;
}

}  // namespace

TEST_CASE("column sums are the sums over all rows") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const long rows : {1L, 3L, 65L, 202L}) {
      for (const long cols : {1L, 17L, 101L}) {
        for (const bool accumulate : {false, true}) {
          const TestMatrix x(dtype, rows, cols, cols + 3, 1);

          const auto out = sum_columns(x, {rows, 1}, 2, accumulate, 0.5F);

          for (long col = 0; col < cols; ++col) {
            double sum = accumulate ? 0.5 : 0.0;
            double magnitude = sum;
            for (long row = 0; row < rows; ++row) {
              sum += x.at(row, col);
              magnitude += std::abs(x.at(row, col));
            }
            const double allowed = static_cast<double>(rows) * epsilon(DType::kF32) * magnitude;
            const auto found = static_cast<double>(out[static_cast<std::size_t>(col)]);
            CHECK(std::abs(found - sum) <= allowed);
          }
        }
      }
    }
  }
}

TEST_CASE("the number of threads changes no bit of column sums") {
  const TestMatrix x(DType::kBF16, 12 * 50, 37, 1);

  const auto expected = sum_columns(x, {50, 3}, 1, false, 0);

  CHECK(same_bits(sum_columns(x, {50, 3}, 2, false, 0), expected));
  CHECK(same_bits(sum_columns(x, {50, 3}, 5, false, 0), expected));
}

TEST_CASE("column sums of split sequences combine by the tree to the bits of the whole") {
  constexpr long kSequences = 3;
  constexpr long kCols = 19;
  constexpr int kRanks = 4;
  constexpr int kBlocksOfRank = 2;
  // Blocks of equal sizes, and of such that a rank's own tokens, cut alone, would be cut elsewhere.
  for (const long seq_length : {44L, 11L, 10L}) {
    CAPTURE(seq_length);
    const TestMatrix x(DType::kF32, kSequences * seq_length, kCols, 1);
    const auto expected = sum_columns(x, {seq_length, kRanks * kBlocksOfRank}, 1, false, 0);
    std::vector<std::vector<float>> sums;
    for (int rank = 0; rank < kRanks; ++rank) {
      const IndexRange first = part_of(seq_length, kRanks * kBlocksOfRank, rank * kBlocksOfRank);
      const IndexRange last = part_of(seq_length, kRanks * kBlocksOfRank, rank * kBlocksOfRank + 1);
      const long own = last.end - first.begin;
      const TestMatrix part(DType::kF32, kSequences * own, kCols, 1);
      for (long row = 0; row < part.view().rows; ++row) {
        const long from = row / own * seq_length + first.begin + row % own;
        std::copy_n(x.view().row<float>(from), kCols, part.view().row<float>(row));
      }
      sums.push_back(sum_columns(part,
                                 {.seq_length = own,
                                  .count = kBlocksOfRank,
                                  .whole_length = seq_length,
                                  .whole_count = kRanks * kBlocksOfRank,
                                  .first_token = first.begin,
                                  .first_block = rank * kBlocksOfRank},
                                 1,
                                 false,
                                 0));
    }
    for (std::size_t col = 0; col < kCols; ++col) {
      CHECK((sums[0][col] + sums[1][col]) + (sums[2][col] + sums[3][col]) == expected[col]);
    }
  }
}

TEST_CASE("column sums with more token blocks than tokens count every token once") {
  const TestMatrix x(DType::kF32, 6, 5, 1);

  const auto out = sum_columns(x, {3, 8}, 1, false, 0);

  for (long col = 0; col < 5; ++col) {
    double sum = 0;
    for (long row = 0; row < 6; ++row) {
      sum += x.at(row, col);
    }
    const auto found = static_cast<double>(out[static_cast<std::size_t>(col)]);
    CHECK(std::abs(found - sum) <= 6 * 6 * epsilon(DType::kF32));
  }
}

namespace {

void sum_in_pieces(const std::vector<std::vector<float>>& inputs,
                   std::vector<float>& out,
                   long piece,
                   int threads) {
  CpuQueue queue(threads);
  const auto count = static_cast<long>(out.size());
  for (long begin = 0; begin < count; begin += piece) {
    std::vector<const float*> from;
    for (const auto& input : inputs) {
      from.push_back(input.data() + begin);
    }
    std::array<float*, 1> to = {out.data() + begin};
    SumTree op;
    op.inputs = from.data();
    op.num_inputs = static_cast<int>(from.size());
    op.outputs = to.data();
    op.num_outputs = 1;
    op.count = std::min(piece, count - begin);
    launch(queue, op);
  }
}

}  // namespace

TEST_CASE("a tree sum has the bits of the aligned tree, wherever the range is cut") {
  constexpr long kCount = 1009;
  for (const int num_inputs : {1, 2, 3, 5, 8, 70}) {
    std::vector<std::vector<float>> inputs;
    for (int input = 0; input < num_inputs; ++input) {
      inputs.push_back(test_vector(kCount, static_cast<std::uint64_t>(input)));
    }
    std::vector<float> expected(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      std::vector<float> leaves;
      for (const auto& input : inputs) {
        leaves.push_back(input[i]);
      }
      expected[i] = tree_sum(leaves);
    }
    for (const long piece : {kCount, 1L, 7L, 65L}) {
      std::vector<float> out(kCount, -1.0F);

      sum_in_pieces(inputs, out, piece, 2);

      CHECK(same_bits(out, expected));
    }
  }
}

TEST_CASE("a tree sum may overwrite its inputs and writes every output") {
  CpuQueue queue(3);
  constexpr long kCount = 100'003;
  std::vector<float> a = test_vector(kCount, 1);
  std::vector<float> b = test_vector(kCount, 2);
  std::vector<float> expected(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    expected[i] = a[i] + b[i];
  }
  const std::array<const float*, 2> inputs = {a.data(), b.data()};
  const std::array<float*, 2> outputs = {a.data(), b.data()};
  SumTree op;
  op.inputs = inputs.data();
  op.num_inputs = 2;
  op.outputs = outputs.data();
  op.num_outputs = 2;
  op.count = kCount;

  launch(queue, op);

  CHECK(same_bits(a, expected));
  CHECK(same_bits(b, expected));
}

TEST_CASE("sums of squares follow one lane order for every chunk, thread and instruction set") {
  constexpr long kChunks = 21;
  const std::vector<float> x = test_vector(kChunks * kChunkElements, 1);
  std::vector<double> expected;
  for (long chunk = 0; chunk < kChunks; ++chunk) {
    std::array<double, 32> lanes{};
    for (long i = 0; i < kChunkElements; ++i) {
      const auto value =
          static_cast<double>(x[static_cast<std::size_t>(chunk * kChunkElements + i)]);
      lanes[static_cast<std::size_t>(i % 32)] += value * value;
    }
    for (std::size_t half = 16; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) {
        lanes[lane] += lanes[lane + half];
      }
    }
    expected.push_back(lanes[0]);
  }
  for (const int threads : {1, 2, 5}) {
    CpuQueue queue(threads);
    std::vector<double> sums(kChunks);
    SquaredSums op;
    op.x = x.data();
    op.count = kChunks * kChunkElements;
    op.chunk_sums = sums.data();

    launch(queue, op);

    CHECK(same_bits(sums, expected));
  }
}

TEST_CASE("filling with zeros clears the asked bytes and no others") {
  CpuQueue queue(2);
  for (const long bytes : {0L, 1L, 1000L, 400'001L}) {
    std::vector<unsigned char> memory(static_cast<std::size_t>(bytes) + 2, 0xab);
    FillZero op;
    op.data = memory.data() + 1;
    op.bytes = static_cast<std::size_t>(bytes);

    launch(queue, op);

    CHECK(memory.front() == 0xab);
    CHECK(memory.back() == 0xab);
    CHECK(std::count(memory.begin(), memory.end(), 0) == bytes);
  }
}

TEST_CASE("casting to bf16 rounds to nearest even and keeps NaN and infinity") {
  CpuQueue queue(2);
  std::vector<float> from = test_vector(40'001, 1);
  from[0] = std::nanf("");
  from[1] = INFINITY;
  from[2] = -INFINITY;
  from[3] = 3.4e38F;      // rounds to infinity
  from[4] = 1.00390625F;  // half way between 1 and the next number: to even
  from[5] = 1.01171875F;  // half way: up to even
  from[6] = -0.0F;
  from[7] = 1e-40F;
  from[40'000] = -std::nanf("");
  std::vector<BFloat16> to(from.size());
  CastToBFloat16 op;
  op.from = from.data();
  op.to = to.data();
  op.count = static_cast<long>(from.size());

  launch(queue, op);

  long wrong = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    wrong += to[i].bits == to_bfloat16(from[i]).bits ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace lockstep
