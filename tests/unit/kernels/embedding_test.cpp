#include "kernels/embedding.h"

#include <vector>

#include "device/cpu/cpu_queue.h"
#include "support/catch.h"
#include "support/kernel_matrix.h"

namespace lockstep {
namespace {

constexpr long kVocab = 12;
constexpr long kSeqLength = 5;

// Rows 0..11 in 3 blocks of 4, which lie apart by more than their size.
struct Table {
  KernelMatrix storage;
  BlockedTable view;

  Table(DType dtype, long cols) : storage(dtype, 3, 4 * cols, 2 * cols + 3) {
    view = {storage.view().data, dtype, cols, 4, storage.view().stride, 0, kVocab};
  }
  [[nodiscard]] double at(long row, long col) const {
    return storage.at(row / 4, row % 4 * view.cols + col);
  }
};

// Every token occurs several times, 0 and 11 among them.
std::vector<std::int32_t> tokens_of(long rows) {
  std::vector<std::int32_t> tokens;
  for (long row = 0; row < rows; ++row) {
    tokens.push_back(static_cast<std::int32_t>((row * 7 + 11) % kVocab));
  }
  return tokens;
}

double round_f32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

}  // namespace

TEST_CASE("an embedding is the rounded sum of the token's and the position's row") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const long cols : {1L, 5L, 72L, 101L}) {
        for (const bool with_positions : {false, true}) {
          CAPTURE(name_of(dtype), cols, with_positions);
          Table table(dtype, cols);
          table.storage.fill_normal(1);
          const KernelMatrix positions = KernelMatrix(dtype, kSeqLength, cols).fill_normal(2);
          const std::vector<std::int32_t> tokens = tokens_of(3 * kSeqLength);
          const KernelMatrix out(dtype, 3 * kSeqLength, cols);
          Embedding op;
          op.tokens = tokens.data();
          op.table = table.view;
          op.positions = with_positions ? positions.view() : Matrix();
          op.seq_length = kSeqLength;
          op.out = out.view();

          launch(queue, op);

          KernelMatrix expected(dtype, 3 * kSeqLength, cols);
          for (long row = 0; row < out.rows(); ++row) {
            for (long col = 0; col < cols; ++col) {
              const double token = table.at(tokens[static_cast<std::size_t>(row)], col);
              const double position = with_positions ? positions.at(row % kSeqLength, col) : 0.0;
              expected.set(row, col, token + position);
            }
          }
          CHECK(out == expected);
        }
      }
    }
  });
}

TEST_CASE("embedding gradients are sums in token order, added to what is there") {
  for_each_instruction_set([] {
    for (const int threads : {1, 2, 5}) {
      CpuQueue queue(threads);
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const long cols : {1L, 5L, 72L, 200L}) {
          CAPTURE(threads, name_of(dtype), cols);
          Table table(DType::kF32, cols);
          table.storage.fill_normal(1);
          KernelMatrix positions = KernelMatrix(DType::kF32, kSeqLength, cols).fill_normal(2);
          const KernelMatrix dout = KernelMatrix(dtype, 3 * kSeqLength, cols).fill_normal(3);
          const std::vector<std::int32_t> tokens = tokens_of(3 * kSeqLength);
          KernelMatrix expected_table = table.storage;
          KernelMatrix expected_positions = positions;
          for (long row = 0; row < dout.rows(); ++row) {
            const long token = tokens[static_cast<std::size_t>(row)];
            for (long col = 0; col < cols; ++col) {
              const long column = token % 4 * cols + col;
              expected_table.set(
                  token / 4,
                  column,
                  round_f32(expected_table.at(token / 4, column) + dout.at(row, col)));
              expected_positions.set(
                  row % kSeqLength,
                  col,
                  round_f32(expected_positions.at(row % kSeqLength, col) + dout.at(row, col)));
            }
          }
          EmbeddingBackward op;
          op.tokens = tokens.data();
          op.dout = dout.view();
          op.dtable = table.view;
          op.dpositions = positions.view();
          op.seq_length = kSeqLength;

          launch(queue, op);

          CHECK(table.storage == expected_table);
          CHECK(positions == expected_positions);
        }
      }
    }
  });
}

}  // namespace lockstep
