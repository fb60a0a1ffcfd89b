#include "kernels/activation.h"

#include "kernels/dispatch.h"

namespace lockstep {
namespace {

// Operations of the tanh form an element, an exponential counted as ten.
constexpr double kGeluOperations = 20;
constexpr double kGeluBackwardOperations = 30;
constexpr double kSwigluOperations = 14;
constexpr double kSwigluBackwardOperations = 22;

double bytes_of(const Matrix& matrix) {
  return matrix ? static_cast<double>(matrix.bytes()) : 0.0;
}

double operations_of(Activation activation, double gelu) {
  switch (activation) {
    case Activation::kIdentity:
      return 0;
    case Activation::kRelu:
      return 1;
    case Activation::kGelu:
      return gelu;
  }
  return 0;
}

}  // namespace

Cost BiasActivation::cost() const {
  const double an_element =
      (bias ? 1.0 : 0.0) + (y ? operations_of(activation, kGeluOperations) : 0.0);
  const double in_place = bias ? 2 * bytes_of(x) : bytes_of(x);
  return {an_element * static_cast<double>(x.size()), in_place + bytes_of(bias) + bytes_of(y)};
}

void launch(Queue& queue, const BiasActivation& op) {
  dispatch(queue, op);
}

Cost ActivationBackward::cost() const {
  const double an_element = 1 + operations_of(activation, kGeluBackwardOperations);
  return {an_element * static_cast<double>(x.size()), bytes_of(x) + bytes_of(dy) + bytes_of(dx)};
}

void launch(Queue& queue, const ActivationBackward& op) {
  dispatch(queue, op);
}

Cost Swiglu::cost() const {
  return {kSwigluOperations * static_cast<double>(gate.size()),
          bytes_of(gate) + bytes_of(up) + bytes_of(y)};
}

void launch(Queue& queue, const Swiglu& op) {
  dispatch(queue, op);
}

Cost SwigluBackward::cost() const {
  return {kSwigluBackwardOperations * static_cast<double>(gate.size()),
          bytes_of(gate) + bytes_of(up) + bytes_of(dy) + bytes_of(dgate) + bytes_of(dup)};
}

void launch(Queue& queue, const SwigluBackward& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
