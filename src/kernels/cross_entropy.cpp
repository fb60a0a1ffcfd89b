#include "kernels/cross_entropy.h"

#include "kernels/dispatch.h"

namespace lockstep {

Cost SoftmaxCrossEntropy::cost() const {
  const double elements = static_cast<double>(logits.rows) * static_cast<double>(num_classes);
  constexpr double kOperationsOfExp = 20;
  const double passes = dlogits ? 2 : 1;
  const double row_bytes = sizeof(std::int32_t) + sizeof(float);
  return {passes * (kOperationsOfExp + 2) * elements,
          sizeof(float) * elements + static_cast<double>(dlogits ? dlogits.bytes() : 0) +
              row_bytes * static_cast<double>(logits.rows)};
}

void launch(Queue& queue, const SoftmaxCrossEntropy& op) {
  dispatch(queue, op);
}

Cost LossSum::cost() const {
  return {static_cast<double>(count), static_cast<double>(count) * sizeof(float)};
}

void launch(Queue& queue, const LossSum& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
