#include "kernels/cross_entropy.h"

#include <algorithm>

#include "kernels/dispatch.h"

namespace lockstep {
namespace {

constexpr double kOperationsOfExp = 20;

double own_elements(const SoftmaxCrossEntropy& op) {
  return static_cast<double>(op.logits.rows) * static_cast<double>(op.own_classes());
}

}  // namespace

long SoftmaxCrossEntropy::own_classes() const {
  return std::clamp(num_classes - first_class, 0L, logits.cols);
}

Cost SoftmaxCrossEntropy::cost() const {
  const double elements = own_elements(*this);
  const double passes = (dlogits ? 1 : 0) + (statistics.parts == 0 ? 1 : 0);
  const double row_bytes = sizeof(std::int32_t) + sizeof(float);
  return {passes * (kOperationsOfExp + 2) * elements,
          sizeof(float) * elements + static_cast<double>(dlogits ? dlogits.bytes() : 0) +
              row_bytes * static_cast<double>(logits.rows)};
}

void launch(Queue& queue, const SoftmaxCrossEntropy& op) {
  dispatch(queue, op);
}

Cost ClassMaxima::cost() const {
  const double elements = own_elements(of);
  return {elements, sizeof(float) * elements};
}

void launch(Queue& queue, const ClassMaxima& op) {
  dispatch(queue, op);
}

Cost ClassSums::cost() const {
  const double elements = own_elements(of);
  return {(kOperationsOfExp + 2) * elements, sizeof(float) * elements};
}

void launch(Queue& queue, const ClassSums& op) {
  dispatch(queue, op);
}

Cost LossSum::cost() const {
  return {static_cast<double>(count), static_cast<double>(count) * sizeof(float)};
}

void launch(Queue& queue, const LossSum& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
