#include "kernels/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_pieces.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

/// Columns of a task of the backward pass: a few cache lines of each row, so that threads never
/// share one.
constexpr long kSliceColumns = 64;

template <typename Table, typename Out>
void embed_row(const Embedding& op, long row) {
  const long token = op.tokens[row];
  const Table* const from = op.table.holds(token)
                                ? static_cast<const Table*>(op.table.data) + op.table.offset(token)
                                : nullptr;
  const Table* const position =
      op.positions ? op.positions.row<Table>(row % op.seq_length) : nullptr;
  Out* const out = op.out.row<Out>(row);
  for_each_vector(op.out.cols, [&](long i, auto lanes) HWY_ATTR {
    VecF32 value = from != nullptr ? load(from + i, lanes) : hn::Zero(kF32Tag);
    if (position != nullptr) {
      value = hn::Add(value, load(position + i, lanes));
    }
    store(value, out + i, lanes);
  });
}

template <typename Table, typename Out>
void embed(CpuQueue& queue, const Embedding& op) {
  for_each_row(queue.threads(), op.out.rows, op.out.cols, [&op](long row) {
    embed_row<Table, Out>(op, row);
  });
}

void embedding(CpuQueue& queue, const Embedding& op) {
  const bool narrow_table = op.table.dtype == DType::kBF16;
  const bool narrow_out = op.out.dtype == DType::kBF16;
  if (narrow_table) {
    narrow_out ? embed<BFloat16, BFloat16>(queue, op) : embed<BFloat16, float>(queue, op);
  } else {
    narrow_out ? embed<float, BFloat16>(queue, op) : embed<float, float>(queue, op);
  }
}

template <typename T>
HWY_INLINE void add_to(const T* from, long count, float* sum) {
  for_each_vector(count, [&](long i, auto lanes) HWY_ATTR {
    store(hn::Add(load(sum + i, lanes), load(from + i, lanes)), sum + i, lanes);
  });
}

// Rows in order, so that the sum of a token or a position has one order whatever the slices are.
template <typename T>
void embedding_backward_slice(const EmbeddingBackward& op, long first) {
  const long count = std::min(kSliceColumns, op.dout.cols - first);
  auto* const table = static_cast<float*>(op.dtable.data);
  for (long row = 0; row < op.dout.rows; ++row) {
    const T* const from = op.dout.row<T>(row) + first;
    if (op.dtable.holds(op.tokens[row])) {
      add_to(from, count, table + op.dtable.offset(op.tokens[row]) + first);
    }
    if (op.dpositions) {
      add_to(from, count, op.dpositions.row<float>(row % op.seq_length) + first);
    }
  }
}

void embedding_backward(CpuQueue& queue, const EmbeddingBackward& op) {
  queue.threads().run(ceil_div(op.dout.cols, kSliceColumns), [&op](long slice) {
    if (op.dout.dtype == DType::kBF16) {
      embedding_backward_slice<BFloat16>(op, slice * kSliceColumns);
    } else {
      embedding_backward_slice<float>(op, slice * kSliceColumns);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(embedding);
HWY_EXPORT(embedding_backward);
}  // namespace

void run_on_cpu(CpuQueue& queue, const Embedding& op) {
  HWY_DYNAMIC_DISPATCH(embedding)(queue, op);
}

void run_on_cpu(CpuQueue& queue, const EmbeddingBackward& op) {
  HWY_DYNAMIC_DISPATCH(embedding_backward)(queue, op);
}

}  // namespace lockstep
#endif
