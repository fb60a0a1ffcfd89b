#include "kernels/matmul.h"

#include "kernels/cpu/matmul.h"
#include "kernels/dispatch.h"

namespace lockstep {

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
