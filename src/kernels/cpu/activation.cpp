#include "kernels/activation.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_pieces.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

constexpr float kTwiceSqrtTwoOverPi = 1.5957691216057308F;
constexpr float kCubic = 0.044715F;

// Outside +-12 both tails of GELU are flat in f32; limiting the argument keeps x^2 finite.
HWY_INLINE VecF32 limit_to_12(VecF32 x) {
  const VecF32 bound = splat(12.0F);
  const VecF32 below = hn::IfThenElse(hn::Gt(x, bound), bound, x);
  return hn::IfThenElse(hn::Lt(below, hn::Neg(bound)), hn::Neg(bound), below);
}

// 0.5 (1 + tanh(u)) is 1 / (1 + e^-2u), which loses no digits for negative u.
HWY_INLINE VecF32 twice_u(VecF32 x, VecF32 square) {
  const VecF32 inner = hn::MulAdd(square, splat(kCubic), splat(1.0F));
  return hn::Mul(hn::Mul(x, splat(kTwiceSqrtTwoOverPi)), inner);
}

HWY_INLINE VecF32 gelu(VecF32 x) {
  const VecF32 limited = limit_to_12(x);
  return hn::Mul(x, sigmoid(twice_u(limited, hn::Mul(limited, limited))));
}

HWY_INLINE VecF32 gelu_gradient(VecF32 x) {
  const VecF32 one = splat(1.0F);
  const VecF32 limited = limit_to_12(x);
  const VecF32 square = hn::Mul(limited, limited);
  VecF32 exponent = hn::Neg(twice_u(limited, square));
  exponent = hn::IfThenElse(hn::Gt(exponent, splat(80.0F)), splat(80.0F), exponent);
  const VecF32 e = exponential_up_to_88(exponent);
  const VecF32 s = hn::Div(one, hn::Add(one, e));
  // s (1 - s) = s^2 e; times the derivative of 2u.
  const VecF32 slope = hn::Mul(
      hn::Mul(hn::Mul(s, s), e),
      hn::MulAdd(square, splat(3.0F * kCubic * kTwiceSqrtTwoOverPi), splat(kTwiceSqrtTwoOverPi)));
  return hn::MulAdd(limited, slope, s);
}

template <Activation kActivation>
HWY_INLINE VecF32 activate(VecF32 x) {
  if constexpr (kActivation == Activation::kGelu) {
    return gelu(x);
  } else if constexpr (kActivation == Activation::kRelu) {
    return hn::IfThenZeroElse(hn::Lt(x, splat(0.0F)), x);  // a NaN stays one
  } else {
    return x;
  }
}

template <Activation kActivation>
HWY_INLINE VecF32 activation_gradient(VecF32 dy, VecF32 x) {
  if constexpr (kActivation == Activation::kGelu) {
    return hn::Mul(dy, gelu_gradient(x));
  } else if constexpr (kActivation == Activation::kRelu) {
    return hn::IfThenZeroElse(hn::Le(x, splat(0.0F)), dy);
  } else {
    return dy;
  }
}

template <typename T, Activation kActivation>
void bias_activation_row(const BiasActivation& op, long row) {
  T* const x = op.x.row<T>(row);
  T* const y = op.y ? op.y.row<T>(row) : nullptr;
  const T* const bias = op.bias.as<T>();
  for_each_vector(op.x.cols, [&](long i, auto lanes) HWY_ATTR {
    VecF32 value = load(x + i, lanes);
    if (bias != nullptr) {
      value = round_to<T>(hn::Add(value, load(bias + i, lanes)));
      store(value, x + i, lanes);
    }
    if (y != nullptr) {
      store(activate<kActivation>(value), y + i, lanes);
    }
  });
}

template <typename T, Activation kActivation>
void activation_backward_row(const ActivationBackward& op, long row) {
  const T* const x = op.x.row<T>(row);
  const T* const dy = op.dy.row<T>(row);
  T* const dx = op.dx.row<T>(row);
  for_each_vector(op.x.cols, [&](long i, auto lanes) HWY_ATTR {
    const VecF32 gradient =
        activation_gradient<kActivation>(load(dy + i, lanes), load(x + i, lanes));
    store(gradient, dx + i, lanes);
  });
}

template <typename T>
void swiglu_row(const Swiglu& op, long row) {
  const T* const gate = op.gate.row<T>(row);
  const T* const up = op.up.row<T>(row);
  T* const y = op.y.row<T>(row);
  for_each_vector(op.gate.cols, [&](long i, auto lanes) HWY_ATTR {
    const VecF32 g = load(gate + i, lanes);
    store(hn::Mul(hn::Mul(g, sigmoid(g)), load(up + i, lanes)), y + i, lanes);
  });
}

template <typename T>
void swiglu_backward_row(const SwigluBackward& op, long row) {
  const T* const gate = op.gate.row<T>(row);
  const T* const up = op.up.row<T>(row);
  const T* const dy = op.dy.row<T>(row);
  T* const dgate = op.dgate.row<T>(row);
  T* const dup = op.dup.row<T>(row);
  for_each_vector(op.gate.cols, [&](long i, auto lanes) HWY_ATTR {
    const VecF32 g = load(gate + i, lanes);
    const VecF32 u = load(up + i, lanes);
    const VecF32 gradient = load(dy + i, lanes);
    const VecF32 s = sigmoid(g);
    const VecF32 silu = hn::Mul(g, s);
    // (g s)' = s + g s (1 - s), where 1 - s is sigmoid(-g) without the loss of digits.
    const VecF32 slope = hn::MulAdd(silu, sigmoid(hn::Neg(g)), s);
    store(hn::Mul(gradient, silu), dup + i, lanes);
    store(hn::Mul(hn::Mul(gradient, u), slope), dgate + i, lanes);
  });
}

template <typename T>
void bias_activation_of(CpuQueue& queue, const BiasActivation& op) {
  const auto rows = [&](auto body) { for_each_row(queue.threads(), op.x.rows, op.x.cols, body); };
  switch (op.activation) {
    case Activation::kIdentity:
      return rows([&op](long row) { bias_activation_row<T, Activation::kIdentity>(op, row); });
    case Activation::kRelu:
      return rows([&op](long row) { bias_activation_row<T, Activation::kRelu>(op, row); });
    case Activation::kGelu:
      return rows([&op](long row) { bias_activation_row<T, Activation::kGelu>(op, row); });
  }
}

template <typename T>
void activation_backward_of(CpuQueue& queue, const ActivationBackward& op) {
  const auto rows = [&](auto body) { for_each_row(queue.threads(), op.x.rows, op.x.cols, body); };
  switch (op.activation) {
    case Activation::kIdentity:
      return rows([&op](long row) { activation_backward_row<T, Activation::kIdentity>(op, row); });
    case Activation::kRelu:
      return rows([&op](long row) { activation_backward_row<T, Activation::kRelu>(op, row); });
    case Activation::kGelu:
      return rows([&op](long row) { activation_backward_row<T, Activation::kGelu>(op, row); });
  }
}

void bias_activation(CpuQueue& queue, const BiasActivation& op) {
  if (op.x.dtype == DType::kBF16) {
    bias_activation_of<BFloat16>(queue, op);
  } else {
    bias_activation_of<float>(queue, op);
  }
}

void activation_backward(CpuQueue& queue, const ActivationBackward& op) {
  if (op.x.dtype == DType::kBF16) {
    activation_backward_of<BFloat16>(queue, op);
  } else {
    activation_backward_of<float>(queue, op);
  }
}

void swiglu(CpuQueue& queue, const Swiglu& op) {
  for_each_row(queue.threads(), op.gate.rows, op.gate.cols, [&op](long row) {
    if (op.gate.dtype == DType::kBF16) {
      swiglu_row<BFloat16>(op, row);
    } else {
      swiglu_row<float>(op, row);
    }
  });
}

void swiglu_backward(CpuQueue& queue, const SwigluBackward& op) {
  for_each_row(queue.threads(), op.gate.rows, op.gate.cols, [&op](long row) {
    if (op.gate.dtype == DType::kBF16) {
      swiglu_backward_row<BFloat16>(op, row);
    } else {
      swiglu_backward_row<float>(op, row);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(bias_activation);
HWY_EXPORT(activation_backward);
HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_backward);
}  // namespace

void run_on_cpu(CpuQueue& queue, const BiasActivation& op) {
  HWY_DYNAMIC_DISPATCH(bias_activation)(queue, op);
}

void run_on_cpu(CpuQueue& queue, const ActivationBackward& op) {
  HWY_DYNAMIC_DISPATCH(activation_backward)(queue, op);
}

void run_on_cpu(CpuQueue& queue, const Swiglu& op) {
  HWY_DYNAMIC_DISPATCH(swiglu)(queue, op);
}

void run_on_cpu(CpuQueue& queue, const SwigluBackward& op) {
  HWY_DYNAMIC_DISPATCH(swiglu_backward)(queue, op);
}

}  // namespace lockstep
#endif
