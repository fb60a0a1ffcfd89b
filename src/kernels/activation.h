// Elementwise non-linearities, fused with the bias before them.
#pragma once

#include <cstdint>

#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "tensor/matrix.h"

namespace lockstep {

/// kGelu: the tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hugging Face gelu_new).
enum class Activation : std::uint8_t { kIdentity, kRelu, kGelu };

/// x = round(x + bias) in place (kept for the backward pass), then y = round(f(x)).
/// bias (one row) may be absent; y may be absent or alias x when the activation is kIdentity or,
/// for inference, always.
struct BiasActivation {
  static constexpr const char* kName = "bias_activation";

  Activation activation = Activation::kIdentity;
  Matrix x;
  Matrix bias;
  Matrix y;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const BiasActivation& op);

/// dx = round(dy * f'(x)) from the kept, rounded x. dx may alias dy.
struct ActivationBackward {
  static constexpr const char* kName = "activation_backward";

  Activation activation = Activation::kIdentity;
  Matrix x;
  Matrix dy;
  Matrix dx;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const ActivationBackward& op);

/// y = round(gate * sigmoid(gate) * up) (Shazeer, "GLU variants improve transformer", 2020).
struct Swiglu {
  static constexpr const char* kName = "swiglu";

  Matrix gate;
  Matrix up;
  Matrix y;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const Swiglu& op);

/// Gradients of Swiglu; dgate and dup may alias gate and up.
struct SwigluBackward {
  static constexpr const char* kName = "swiglu_backward";

  Matrix gate;
  Matrix up;
  Matrix dy;
  Matrix dgate;
  Matrix dup;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const SwigluBackward& op);

}  // namespace lockstep
