// Matrix products.
#pragma once

#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// c[m x n] = op(a)[m x k] * op(b)[k x n], or c += it, where op transposes its operand if asked.
/// a and b have one dtype (f32 or bf16); c has theirs or f32; accumulation is in f32, c is rounded
/// once. `accumulate` needs c in f32. Operands may be views with any stride; c may not overlap them.
/// The bits depend on the shapes, dtypes and transpositions alone, never on threads or addresses
/// (and on what matmul_implementation_name() tells of the machine). The workspace holds
/// the operand of the shorter side of c in f32: 4 k min(m, n) bytes, about.
struct MatMul {
  static constexpr const char* kName = "matmul";
  static constexpr bool kCountsOperations = true;

  Matrix a;
  bool transpose_a = false;
  Matrix b;
  bool transpose_b = false;
  Matrix c;
  bool accumulate = false;

  [[nodiscard]] long m() const { return c.rows; }
  [[nodiscard]] long n() const { return c.cols; }
  [[nodiscard]] long k() const { return transpose_a ? a.rows : a.cols; }
  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const;
  /// cuBLASLt's scratch and dense copies of the operands that lie worse than dense_alignment.
  [[nodiscard]] std::size_t cuda_workspace_bytes() const;
};

void launch(Queue& queue, const MatMul& op);

/// What cuBLASLt may take for one product: always the same, as its choice depends on it.
inline constexpr std::size_t kCublasWorkspaceBytes = std::size_t{32} << 20U;

/// Dense copies in the workspace start on a multiple of this.
inline constexpr std::size_t kDenseCopyAlignment = 256;

/// Bytes, at most 16, on whose multiples all rows of a dense matrix of this shape start: what a choice of
/// algorithm may count on whatever the strides.
std::size_t dense_alignment(const Matrix& matrix);
/// Whether the matrix itself, with its address and stride, is aligned as well as that.
bool is_aligned_as_dense(const Matrix& matrix);

/// W matrices of one shape, `stride` elements apart: the partial products of a split inner
/// dimension, each rounded to its dtype. Their sum is taken in f32 by the aligned tree.
struct BlockSum {
  Matrix first;
  int count = 1;
  long stride = 0;

  BlockSum() = default;
  explicit BlockSum(Matrix only) : first(only) {}
  BlockSum(Matrix first_in, int count_in, long stride_in)
      : first(first_in), count(count_in), stride(stride_in) {}
  [[nodiscard]] Matrix block(int index) const {
    const long bytes = index * stride * static_cast<long>(size_of(first.dtype));
    return {first.as<std::byte>() + bytes, first.dtype, first.rows, first.cols, first.stride};
  }
};

/// At most this many blocks (parallel.virtual_tensor).
inline constexpr int kMaxBlocks = 64;

/// out = round(tree sum of the blocks + bias + residual); bias (one row) and residual, of one dtype,
/// may be absent. The additions happen in f32 in this order. out may alias residual or the first block.
struct CombineBlocks {
  static constexpr const char* kName = "combine_blocks";

  BlockSum blocks;
  Matrix bias;
  Matrix residual;
  Matrix out;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const CombineBlocks& op);

}  // namespace lockstep
