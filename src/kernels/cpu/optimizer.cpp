#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

FloatVector broadcast(double value) {
  return hn::Set(Floats(), static_cast<float>(value));
}

template <bool Round>
void adamw_as(const AdamW& op, long begin, long end) {
  const auto scale = broadcast(static_cast<double>(op.gradient_scale));
  const auto decay = broadcast(op.lr * op.weight_decay);
  const auto beta1 = broadcast(op.beta1);
  const auto beta2 = broadcast(op.beta2);
  const auto rest1 = broadcast(1 - op.beta1);
  const auto rest2 = broadcast(1 - op.beta2);
  const auto step = broadcast(op.lr / op.correction1);
  const auto correction2 = broadcast(1 / std::sqrt(op.correction2));
  const auto epsilon = broadcast(op.epsilon);
  auto* rounded = static_cast<BFloat16*>(op.compute_bf16);
  for_vectors(begin, end, [&](long i, auto part) HWY_ATTR {
    const auto g = hn::Mul(part.load(op.gradient + i), scale);
    auto p = part.load(op.parameter + i);
    p = hn::NegMulAdd(decay, p, p);
    const auto m = hn::MulAdd(rest1, g, hn::Mul(beta1, part.load(op.first_moment + i)));
    const auto v =
        hn::MulAdd(hn::Mul(rest2, g), g, hn::Mul(beta2, part.load(op.second_moment + i)));
    const auto divisor = hn::MulAdd(hn::Sqrt(v), correction2, epsilon);
    p = hn::NegMulAdd(step, hn::Div(m, divisor), p);
    part.store(p, op.parameter + i);
    part.store(m, op.first_moment + i);
    part.store(v, op.second_moment + i);
    if constexpr (Round) {
      part.store(p, rounded + i);
    }
  });
}

void adamw(const AdamW& op, long begin, long end) {
  (op.compute_bf16 == nullptr ? adamw_as<false> : adamw_as<true>)(op, begin, end);
}

template <bool Momentum, bool Round>
void sgd_as(const Sgd& op, long begin, long end) {
  const auto scale = broadcast(static_cast<double>(op.gradient_scale));
  const auto decay = broadcast(op.weight_decay);
  const auto momentum = broadcast(op.momentum);
  const auto lr = broadcast(op.lr);
  auto* rounded = static_cast<BFloat16*>(op.compute_bf16);
  for_vectors(begin, end, [&](long i, auto part) HWY_ATTR {
    auto p = part.load(op.parameter + i);
    auto g = hn::MulAdd(decay, p, hn::Mul(part.load(op.gradient + i), scale));
    if constexpr (Momentum) {
      g = hn::MulAdd(momentum, part.load(op.velocity + i), g);
      part.store(g, op.velocity + i);
    }
    p = hn::NegMulAdd(lr, g, p);
    part.store(p, op.parameter + i);
    if constexpr (Round) {
      part.store(p, rounded + i);
    }
  });
}

void sgd(const Sgd& op, long begin, long end) {
  if (op.velocity == nullptr) {
    (op.compute_bf16 == nullptr ? sgd_as<false, false> : sgd_as<false, true>)(op, begin, end);
  } else {
    (op.compute_bf16 == nullptr ? sgd_as<true, false> : sgd_as<true, true>)(op, begin, end);
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(adamw);
HWY_EXPORT(sgd);

}  // namespace

void run_on_cpu(CpuQueue& queue, const AdamW& op) {
  for_ranges(queue.threads(), op.count, kElementsPerTask, [&](IndexRange range) {
    HWY_DYNAMIC_DISPATCH(adamw)(op, range.begin, range.end);
  });
}

void run_on_cpu(CpuQueue& queue, const Sgd& op) {
  for_ranges(queue.threads(), op.count, kElementsPerTask, [&](IndexRange range) {
    HWY_DYNAMIC_DISPATCH(sgd)(op, range.begin, range.end);
  });
}

}  // namespace lockstep
#endif
