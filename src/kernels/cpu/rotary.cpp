#include "kernels/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/row_pieces.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

template <typename T>
void rotate_row(const Rotary& op, long row) {
  const long half = op.head_dim / 2;
  const long position = row % op.seq_length;
  const float* cos = op.cos + position * half;
  const float* sin = op.sin + position * half;
  const VecF32 direction = splat(op.inverse ? -1.0F : 1.0F);
  for (long first = 0; first < op.x.cols; first += op.head_dim) {
    T* const low = op.x.row<T>(row) + first;
    T* const high = low + half;
    for_each_vector(half, [&](long i, auto lanes) HWY_ATTR {
      const VecF32 c = load(cos + i, lanes);
      const VecF32 s = hn::Mul(load(sin + i, lanes), direction);
      const VecF32 a = load(low + i, lanes);
      const VecF32 b = load(high + i, lanes);
      store(hn::NegMulAdd(b, s, hn::Mul(a, c)), low + i, lanes);
      store(hn::MulAdd(a, s, hn::Mul(b, c)), high + i, lanes);
    });
  }
}

void rotary(CpuQueue& queue, const Rotary& op) {
  for_each_row(queue.threads(), op.x.rows, op.x.cols, [&op](long row) {
    if (op.x.dtype == DType::kBF16) {
      rotate_row<BFloat16>(op, row);
    } else {
      rotate_row<float>(op, row);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(rotary);
}  // namespace

void run_on_cpu(CpuQueue& queue, const Rotary& op) {
  HWY_DYNAMIC_DISPATCH(rotary)(queue, op);
}

}  // namespace lockstep
#endif
