#include "kernels/matmul.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/integers.h"
#include "kernels/cpu/matmul.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

// The largest of 1, 2, 4, 8, 16 that divides `bytes`.
std::size_t alignment_of(std::size_t bytes) {
  constexpr int kLargest = 4;
  return std::size_t{1} << static_cast<unsigned>(std::min(kLargest, std::countr_zero(bytes)));
}

}  // namespace

Cost MatMul::cost() const {
  const double rows = static_cast<double>(m());
  const double cols = static_cast<double>(n());
  const double inner = static_cast<double>(k());
  const double operand_size = static_cast<double>(size_of(a.dtype));
  const double result_size = static_cast<double>(size_of(c.dtype)) * (accumulate ? 2 : 1);
  return {2 * rows * cols * inner,
          operand_size * inner * (rows + cols) + result_size * rows * cols};
}

std::size_t MatMul::workspace_bytes() const {
  return cpu_matmul_workspace_bytes(*this);
}

std::size_t MatMul::cuda_workspace_bytes() const {
  std::size_t bytes = kCublasWorkspaceBytes;
  for (const Matrix& matrix : {a, b, c}) {
    if (!is_aligned_as_dense(matrix)) {
      bytes += round_up(matrix.bytes(), kDenseCopyAlignment);
    }
  }
  return bytes;
}

std::size_t dense_alignment(const Matrix& matrix) {
  return alignment_of(static_cast<std::size_t>(matrix.cols) * size_of(matrix.dtype));
}

bool is_aligned_as_dense(const Matrix& matrix) {
  const long stride = matrix.rows > 1 ? matrix.stride : matrix.cols;
  const std::size_t row_bytes = static_cast<std::size_t>(stride) * size_of(matrix.dtype);
  const auto address = reinterpret_cast<std::uintptr_t>(matrix.data);
  return std::min(alignment_of(address), alignment_of(row_bytes)) >= dense_alignment(matrix);
}

void launch(Queue& queue, const MatMul& op) {
  dispatch(queue, op);
}

Cost CombineBlocks::cost() const {
  const auto elements = static_cast<double>(out.size());
  const double operands = blocks.count + (bias ? 1 : 0) + (residual ? 1 : 0);
  return {elements * (operands - 1),
          static_cast<double>(blocks.first.bytes()) * blocks.count +
              static_cast<double>((bias ? bias.bytes() : 0) + (residual ? residual.bytes() : 0)) +
              static_cast<double>(out.bytes())};
}

void launch(Queue& queue, const CombineBlocks& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
