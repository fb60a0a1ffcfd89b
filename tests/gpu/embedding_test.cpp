// Embeddings on both devices.
#include "kernels/embedding.h"

#include <vector>

#include "operand.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr long kSeqLength = 5;
constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

// Rows 2 to 11 of a table of 14 in blocks of 4, the first of which lies elsewhere.
struct Table {
  static constexpr long kFirstRow = 2;
  static constexpr long kNumRows = 10;
  static constexpr long kRowsPerBlock = 4;
  Operand storage;
  long cols;

  Table(TwinQueues& queues, DType dtype, long cols_in, Placement placement)
      : storage(queues, dtype, 3, kRowsPerBlock * cols_in, 1, placement), cols(cols_in) {}
  [[nodiscard]] BlockedTable view(bool on_cuda) {
    const Matrix all = on_cuda ? storage.cuda() : storage.cpu();
    return {all.data, all.dtype, cols, kRowsPerBlock, all.stride, kFirstRow, kNumRows};
  }
};

std::vector<std::int32_t> tokens_of(long rows, long vocab) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(static_cast<std::size_t>(rows));
  for (long row = 0; row < rows; ++row) {
    // Every third token is a frequent one.
    tokens.push_back(static_cast<std::int32_t>(row % 3 == 0 ? vocab / 2 : (row * 7 + 11) % vocab));
  }
  return tokens;
}

}  // namespace

TEST_CASE("an embedding on a GPU has the CPU's bits, rows that others hold included") {
  TwinQueues queues;
  for (const DType table_type : kTypes) {
    for (const DType out_type : kTypes) {
      for (const long cols : {1L, 8L, 37L}) {
        for (const Placement placement : kPlacements) {
          const bool with_positions = cols != 8;
          CAPTURE(name_of(table_type), name_of(out_type), cols, placement.offset);
          Table table(queues, table_type, cols, placement);
          Operand positions(queues, table_type, kSeqLength, cols, 2, placement);
          Operand out(queues, out_type, 3 * kSeqLength, cols, 3, placement);
          TwinArray<std::int32_t> tokens(queues, tokens_of(3 * kSeqLength, 14));
          const auto op = [&](bool on_cuda) {
            const auto of = [&](Operand& m) { return on_cuda ? m.cuda() : m.cpu(); };
            return Embedding{.tokens = on_cuda ? tokens.cuda() : tokens.cpu(),
                             .table = table.view(on_cuda),
                             .positions = with_positions ? of(positions) : Matrix(),
                             .seq_length = kSeqLength,
                             .out = of(out)};
          };
          launch(queues.cpu(), op(false));

          run_on_cuda(queues.cuda(), op(true));

          CHECK(same_bits(out.from_cuda(), out.from_cpu()));
          CHECK(out.surroundings_agree());
        }
      }
    }
  }
}

TEST_CASE("gradients of an embedding on a GPU are sums in token order: they have the CPU's bits") {
  TwinQueues queues;
  for (const DType dtype : kTypes) {
    for (const long cols : {1L, 8L, 37L, 300L}) {
      for (const Placement placement : kPlacements) {
        CAPTURE(name_of(dtype), cols, placement.offset);
        const long rows =
            cols == 8 ? 40 * kSeqLength : 3 * kSeqLength;  // a token more than 32 times
        Table table(queues, DType::kF32, cols, placement);
        Operand positions(queues, DType::kF32, kSeqLength, cols, 2, placement);
        Operand dout(queues, dtype, rows, cols, 3, placement);
        TwinArray<std::int32_t> tokens(queues, tokens_of(rows, 14));
        const auto op = [&](bool on_cuda) {
          const auto of = [&](Operand& m) { return on_cuda ? m.cuda() : m.cpu(); };
          return EmbeddingBackward{.tokens = on_cuda ? tokens.cuda() : tokens.cpu(),
                                   .dout = of(dout),
                                   .dtable = table.view(on_cuda),
                                   .dpositions = cols == 37 ? Matrix() : of(positions),
                                   .seq_length = kSeqLength};
        };
        launch(queues.cpu(), op(false));

        run_on_cuda(queues.cuda(), op(true));

        CHECK(same_bits(table.storage.from_cuda(), table.storage.from_cpu()));
        CHECK(table.storage.surroundings_agree());
        CHECK(same_bits(positions.from_cuda(), positions.from_cpu()));
        CHECK(positions.surroundings_agree());
      }
    }
  }
}

TEST_CASE("gradients of an embedding on a GPU sort many tokens of a large vocabulary") {
  TwinQueues queues;
  constexpr long kVocab = 700;                        // two digits
  constexpr long kRows = 2 * kEmbeddingTileRows + 9;  // three tiles
  constexpr long kCols = 2;
  Operand table(queues, DType::kF32, kVocab, kCols, 1);
  Operand dout(queues, DType::kF32, kRows, kCols, 2);
  TwinArray<std::int32_t> tokens(queues, tokens_of(kRows, kVocab));
  const auto op = [&](bool on_cuda) {
    const Matrix rows = on_cuda ? table.cuda() : table.cpu();
    return EmbeddingBackward{
        .tokens = on_cuda ? tokens.cuda() : tokens.cpu(),
        .dout = on_cuda ? dout.cuda() : dout.cpu(),
        .dtable = {rows.data, rows.dtype, kCols, kVocab, kVocab * kCols, 0, kVocab},
        .dpositions = {},
        .seq_length = kRows};
  };
  launch(queues.cpu(), op(false));

  run_on_cuda(queues.cuda(), op(true));

  CHECK(same_bits(table.from_cuda(), table.from_cpu()));
}

}  // namespace lockstep
