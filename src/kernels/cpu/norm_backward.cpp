#include "kernels/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm_backward.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/highway.h>

#include "base/error.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/block_sum-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/token_pieces.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

/// Columns of a task that combines the partial sums of pieces.
constexpr long kSliceColumns = 64;

/// The partial sums of one piece, one float a column; dbias may be null.
struct Partials {
  float* dgain = nullptr;
  float* dbias = nullptr;
};

// The means over a row of gain * dy and of gain * dy * normalised x.
struct RowMeans {
  float gradient = 0.0F;
  float product = 0.0F;
};

template <typename Dy, typename T>
HWY_INLINE RowMeans means_of_row(const NormBackward& op, const BlockRow<Dy>& dy, long row) {
  const T* const x = op.x.row<T>(row);
  const T* const gain = op.gain.as<T>();
  const VecF32 mean = splat(op.mean != nullptr ? op.mean[row] : 0.0F);
  const VecF32 rstd = splat(op.rstd[row]);
  VecF32 gradients = hn::Zero(kF32Tag);
  VecF32 products = hn::Zero(kF32Tag);
  for_each_vector(op.x.cols, [&](long i, auto lanes) HWY_ATTR {
    const VecF32 normal = hn::Mul(hn::Sub(load(x + i, lanes), mean), rstd);
    const VecF32 gradient = hn::Mul(round_to<T>(dy.load_sum(i, lanes)), load(gain + i, lanes));
    gradients = hn::Add(gradients, gradient);
    products = hn::MulAdd(gradient, normal, products);
  });
  const auto width = static_cast<float>(op.x.cols);
  return {sum_of_lanes(gradients) / width, sum_of_lanes(products) / width};
}

template <typename Dy, typename T>
HWY_INLINE void norm_backward_row(const NormBackward& op, long row, const Partials& partials) {
  const BlockRow<Dy> dy(op.dy, row);
  const RowMeans means = means_of_row<Dy, T>(op, dy, row);
  const bool layer = op.kind == NormKind::kLayer;
  const VecF32 mean_gradient = splat(layer ? means.gradient : 0.0F);
  const VecF32 mean_product = splat(means.product);
  const VecF32 mean = splat(op.mean != nullptr ? op.mean[row] : 0.0F);
  const VecF32 rstd = splat(op.rstd[row]);
  const T* const x = op.x.row<T>(row);
  const T* const gain = op.gain.as<T>();
  const T* const dresidual = op.dresidual ? op.dresidual.row<T>(row) : nullptr;
  T* const dx = op.dx.row<T>(row);
  for_each_vector(op.x.cols, [&](long i, auto lanes) HWY_ATTR {
    const VecF32 normal = hn::Mul(hn::Sub(load(x + i, lanes), mean), rstd);
    const VecF32 upper = round_to<T>(dy.load_sum(i, lanes));
    const VecF32 gradient = hn::Mul(upper, load(gain + i, lanes));
    const VecF32 centered = hn::NegMulAdd(normal, mean_product, hn::Sub(gradient, mean_gradient));
    const VecF32 past = dresidual != nullptr ? load(dresidual + i, lanes) : hn::Zero(kF32Tag);
    store(hn::MulAdd(centered, rstd, past), dx + i, lanes);
    float* const dgain = partials.dgain + i;
    store(hn::MulAdd(upper, normal, load(dgain, lanes)), dgain, lanes);
    if (partials.dbias != nullptr) {
      float* const dbias = partials.dbias + i;
      store(hn::Add(upper, load(dbias, lanes)), dbias, lanes);
    }
  });
}

template <typename Dy, typename T>
void norm_backward_piece(const NormBackward& op,
                         const RowPieces& pieces,
                         long index,
                         const Partials& partials) {
  const RowPieces::Piece piece = pieces.piece(index);
  std::fill_n(partials.dgain, op.x.cols, 0.0F);
  if (partials.dbias != nullptr) {
    std::fill_n(partials.dbias, op.x.cols, 0.0F);
  }
  for (long i = piece.rows.begin; i < piece.rows.end; ++i) {
    norm_backward_row<Dy, T>(op, pieces.row_of(piece.block, i), partials);
  }
}

// out (+)= the tree over blocks of the sums of their pieces in order, for a slice of columns.
// Piece p starts at partials + p * stride.
void combine_pieces(const RowPieces& pieces,
                    const float* partials,
                    long stride,
                    IndexRange columns,
                    bool accumulate,
                    float* out) {
  for_each_vector(columns.size(), [&](long i, auto lanes) HWY_ATTR {
    const float* next = partials + columns.begin + i;
    const VecF32 sum = tree_sum_of(pieces.num_blocks(), [&](long block) HWY_ATTR {
      VecF32 block_sum = hn::Zero(kF32Tag);
      for (long piece = 0; piece < pieces.pieces_of(block); ++piece) {
        block_sum = hn::Add(block_sum, load(next, lanes));
        next += stride;
      }
      return block_sum;
    });
    float* const to = out + columns.begin + i;
    store(accumulate ? hn::Add(load(to, lanes), sum) : sum, to, lanes);
  });
}

void norm_backward(CpuQueue& queue, const NormBackward& op) {
  const RowPieces pieces(op.x.rows, op.token_blocks);
  const long cols = op.x.cols;
  const bool with_bias = op.dbias != nullptr;
  const long stride = with_bias ? 2 * cols : cols;
  auto* const partials = reinterpret_cast<float*>(queue.workspace(op.workspace_bytes()));
  queue.threads().run(pieces.count(), [&](long index) {
    float* const own = partials + index * stride;
    const Partials sums = {own, with_bias ? own + cols : nullptr};
    if (op.x.dtype == DType::kF32) {
      norm_backward_piece<float, float>(op, pieces, index, sums);
    } else if (op.dy.first.dtype == DType::kF32) {
      norm_backward_piece<float, BFloat16>(op, pieces, index, sums);
    } else {
      norm_backward_piece<BFloat16, BFloat16>(op, pieces, index, sums);
    }
  });
  queue.threads().run(ceil_div(cols, kSliceColumns), [&](long slice) {
    const IndexRange columns = {slice * kSliceColumns, std::min((slice + 1) * kSliceColumns, cols)};
    combine_pieces(pieces, partials, stride, columns, op.accumulate, op.dgain);
    if (with_bias) {
      combine_pieces(pieces, partials + cols, stride, columns, op.accumulate, op.dbias);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(norm_backward);
}  // namespace

void run_on_cpu(CpuQueue& queue, const NormBackward& op) {
  LOCKSTEP_CHECK(op.token_blocks.count <= kMaxBlocks);
  HWY_DYNAMIC_DISPATCH(norm_backward)(queue, op);
}

}  // namespace lockstep
#endif
