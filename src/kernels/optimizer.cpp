#include "kernels/optimizer.h"

#include "kernels/dispatch.h"

namespace lockstep {

Cost AdamW::cost() const {
  const auto elements = static_cast<double>(count);
  return {18 * elements, (compute_bf16 == nullptr ? 28 : 30) * elements};
}

void launch(Queue& queue, const AdamW& op) {
  dispatch(queue, op);
}

Cost Sgd::cost() const {
  const auto elements = static_cast<double>(count);
  const double bytes = 12 + (velocity == nullptr ? 0 : 8) + (compute_bf16 == nullptr ? 0 : 2);
  return {(velocity == nullptr ? 5 : 7) * elements, bytes * elements};
}

void launch(Queue& queue, const Sgd& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
