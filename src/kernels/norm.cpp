#include "kernels/norm.h"

#include "kernels/cpu/token_pieces.h"
#include "kernels/cuda/token_rows.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

double bytes_of(const Matrix& matrix) {
  return matrix ? static_cast<double>(matrix.bytes()) : 0.0;
}

double bytes_of(const BlockSum& blocks) {
  return blocks.count * bytes_of(blocks.first);
}

// Of one element: statistics in two passes, normalisation, gain and bias.
constexpr double kForwardOperations = 8;
// Of one element: two sums over the row, the gradient, two sums over tokens.
constexpr double kBackwardOperations = 14;

}  // namespace

Cost NormForward::cost() const {
  const auto elements = static_cast<double>(y.size());
  const double added = (x.count - 1) + (x_bias ? 1 : 0) + (residual ? 1 : 0);
  const double statistics = static_cast<double>(y.rows) * sizeof(float) *
                            ((mean != nullptr ? 1 : 0) + (rstd != nullptr ? 1 : 0));
  return {(kForwardOperations + added) * elements,
          bytes_of(x) + bytes_of(x_bias) + bytes_of(residual) + bytes_of(sum) + bytes_of(gain) +
              bytes_of(bias) + bytes_of(y) + statistics};
}

void launch(Queue& queue, const NormForward& op) {
  dispatch(queue, op);
}

Cost NormBackward::cost() const {
  const auto elements = static_cast<double>(dx.size());
  const double sums = static_cast<double>(x.cols) * sizeof(float) * (dbias != nullptr ? 2 : 1);
  const double statistics = static_cast<double>(x.rows) * sizeof(float) * (mean != nullptr ? 2 : 1);
  return {(kBackwardOperations + dy.count - 1) * elements,
          bytes_of(dy) + bytes_of(x) + bytes_of(gain) + bytes_of(dresidual) + bytes_of(dx) +
              (accumulate ? 2 : 1) * sums + statistics};
}

std::size_t NormBackward::workspace_bytes() const {
  const RowPieces pieces(x.rows, token_blocks);
  const long sums = dbias != nullptr ? 2 : 1;
  return static_cast<std::size_t>(pieces.count() * sums * x.cols) * sizeof(float);
}

std::size_t NormBackward::cuda_workspace_bytes() const {
  const long slots = norm_backward_rows(x.rows, token_blocks).num_slots();
  const long sums = dbias != nullptr ? 2 : 1;
  return static_cast<std::size_t>(slots * sums * x.cols) * sizeof(float);
}

void launch(Queue& queue, const NormBackward& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
