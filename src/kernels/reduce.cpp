#include "kernels/reduce.h"

#include "base/integers.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cuda/token_rows.h"
#include "kernels/dispatch.h"

namespace lockstep {

Cost ColumnSum::cost() const {
  const double results = static_cast<double>(x.cols) * sizeof(float) * (accumulate ? 2 : 1);
  return {static_cast<double>(x.size()), static_cast<double>(x.bytes()) + results};
}

std::size_t ColumnSum::workspace_bytes() const {
  return cpu_column_sum_workspace_bytes(*this);
}

std::size_t ColumnSum::cuda_workspace_bytes() const {
  return static_cast<std::size_t>(column_sum_rows(x.rows, token_blocks).num_slots() * x.cols) *
         sizeof(float);
}

void launch(Queue& queue, const ColumnSum& op) {
  dispatch(queue, op);
}

Cost SumTree::cost() const {
  const auto elements = static_cast<double>(count);
  return {elements * (num_inputs - 1), elements * sizeof(float) * (num_inputs + num_outputs)};
}

std::size_t SumTree::cuda_workspace_bytes() const {
  const int pointers = num_inputs + num_outputs;
  return pointers <= kSumTreeParameters ? 0 : static_cast<std::size_t>(pointers) * sizeof(void*);
}

void launch(Queue& queue, const SumTree& op) {
  dispatch(queue, op);
}

Cost SquaredSums::cost() const {
  const auto elements = static_cast<double>(count);
  return {2 * elements, elements * sizeof(float) + elements / kChunkElements * sizeof(double)};
}

void launch(Queue& queue, const SquaredSums& op) {
  dispatch(queue, op);
}

Cost FillZero::cost() const {
  return {0, static_cast<double>(bytes)};
}

void launch(Queue& queue, const FillZero& op) {
  dispatch(queue, op);
}

Cost CastToBFloat16::cost() const {
  return {0, 6 * static_cast<double>(count)};
}

void launch(Queue& queue, const CastToBFloat16& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
