#include "kernels/attention.h"

#include "base/integers.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

// Pairs of a query and a key that it sees, over all heads.
double num_pairs(const AttentionShape& shape) {
  const auto length = static_cast<double>(shape.seq_length);
  return static_cast<double>(shape.batch * shape.heads) * length * (length + 1) / 2;
}

double log_sum_exp_bytes(const AttentionShape& shape) {
  return static_cast<double>(shape.batch * shape.heads * shape.seq_length) * sizeof(float);
}

double bytes_of(std::initializer_list<Matrix> matrices) {
  double bytes = 0;
  for (const Matrix& matrix : matrices) {
    bytes += static_cast<double>(matrix.bytes());
  }
  return bytes;
}

}  // namespace

Cost Rotary::cost() const {
  const auto elements = static_cast<double>(x.size());
  const double table = static_cast<double>(seq_length * head_dim) * sizeof(float);
  return {3 * elements, 2 * static_cast<double>(x.bytes()) + table};
}

void launch(Queue& queue, const Rotary& op) {
  dispatch(queue, op);
}

Cost AttentionForward::cost() const {
  const double kept = log_sum_exp != nullptr ? log_sum_exp_bytes(shape) : 0.0;
  return {4 * static_cast<double>(shape.head_dim) * num_pairs(shape),
          bytes_of({q, k, v, out}) + kept};
}

void launch(Queue& queue, const AttentionForward& op) {
  dispatch(queue, op);
}

Cost AttentionBackward::cost() const {
  return {10 * static_cast<double>(shape.head_dim) * num_pairs(shape),
          bytes_of({q, k, v, out, dout, dq, dk, dv}) + log_sum_exp_bytes(shape)};
}

std::size_t AttentionBackward::workspace_bytes() const {
  if (accumulates_in_place()) {
    return 0;
  }
  const long head_bytes = shape.seq_length * round_up(shape.head_dim, kHeadDimMultiple) *
                          static_cast<long>(sizeof(float));
  return static_cast<std::size_t>(2 * shape.batch * shape.kv_heads * head_bytes);
}

std::size_t AttentionBackward::cuda_workspace_bytes() const {
  const long rows = shape.batch * shape.heads * round_up(shape.seq_length, kStatisticsMultiple);
  return 2 * sizeof(float) * static_cast<std::size_t>(rows);
}

void launch(Queue& queue, const AttentionBackward& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
