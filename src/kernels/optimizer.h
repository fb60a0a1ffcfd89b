// Optimiser updates of a range of the flat buffers, in one pass over memory.
#pragma once

#include "device/dry/dry_queue.h"
#include "device/queue.h"

namespace lockstep {

/// AdamW (Loshchilov & Hutter, 2019), elementwise in f32 with fused multiply-adds where the
/// processor has them; square root and division are IEEE's:
///   g = gradient * gradient_scale;  p = p - lr * weight_decay * p
///   m = beta1 m + (1 - beta1) g;    v = beta2 v + (1 - beta2) g^2
///   p = p - (lr / correction1) * m / (sqrt(v) * (1 / sqrt(correction2)) + epsilon)
/// with correction_i = 1 - beta_i^t for update number t = 1, 2, ... The new p is also written,
/// rounded, to compute_bf16 unless that is null. 28 (f32) or 30 bytes an element. Cutting the range
/// anywhere leaves the bits.
struct AdamW {
  static constexpr const char* kName = "adamw";

  long count = 0;
  float* parameter = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  const float* gradient = nullptr;
  void* compute_bf16 = nullptr;
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double correction1 = 1;
  double correction2 = 1;
  float gradient_scale = 1;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const AdamW& op);

/// g = gradient * gradient_scale + weight_decay * p; with momentum: b = momentum b + g, g = b;
/// p = p - lr g (PyTorch's SGD). velocity is null without momentum, and zeros before the first step.
/// Cutting the range anywhere leaves the bits.
struct Sgd {
  static constexpr const char* kName = "sgd";

  long count = 0;
  float* parameter = nullptr;
  float* velocity = nullptr;
  const float* gradient = nullptr;
  void* compute_bf16 = nullptr;
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  float gradient_scale = 1;

  [[nodiscard]] Cost cost() const;
  [[nodiscard]] std::size_t workspace_bytes() const { return 0; }
};

void launch(Queue& queue, const Sgd& op);

}  // namespace lockstep
