// Rotary position embedding.
#include "base/bfloat16.h"
#include "kernels/attention.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lockstep {
namespace {

// A "column" is one vector of the lower halves of a row's heads, with its partners in the upper ones. Reads and writes x:
// 25 MB at 8 x 1024 tokens, 768 features in bf16, 5.2 us at 4.8 TB/s; cosines and sines come from a cache.
template <typename T, bool kAligned>
struct RotaryBody {
  static constexpr int kWidth = kVectorWidth<T>;
  Rows<T> x;
  const float* cos;
  const float* sin;
  unsigned half;
  unsigned vectors_of_head;
  unsigned seq_length;
  float direction;

  __device__ void operator()(long row, long vector, int /*count*/) const {
    const auto index = static_cast<unsigned>(vector);
    const unsigned first = index % vectors_of_head * kWidth;
    const long head = index / vectors_of_head * 2L * half;
    const int count = min(static_cast<int>(half - first), kWidth);
    T* const low = x.at(row, head + first);
    T* const high = low + half;
    const long angle = static_cast<long>(static_cast<unsigned>(row) % seq_length) * half + first;
    const Floats<kWidth> c = load_floats<kAligned, kWidth>(cos + angle, count);
    const Floats<kWidth> s = load_floats<kAligned, kWidth>(sin + angle, count);
    Floats<kWidth> a = load_floats<kAligned, kWidth>(low, count);
    Floats<kWidth> b = load_floats<kAligned, kWidth>(high, count);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float sine = s.at[i] * direction;
      const float rotated = fmaf(-b.at[i], sine, a.at[i] * c.at[i]);
      b.at[i] = fmaf(a.at[i], sine, b.at[i] * c.at[i]);
      a.at[i] = rotated;
    }
    store_floats<kAligned>(a, low, count);
    store_floats<kAligned>(b, high, count);
  }
};

}  // namespace

void run_on_cuda(CudaQueue& queue, const Rotary& op) {
  with_type(op.x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kWidth = kVectorWidth<T>;
    const long half = op.head_dim / 2;
    const bool all_aligned = is_aligned(op.x, kWidth) && half % kWidth == 0 &&
                             is_aligned(op.cos, DType::kF32, kWidth) &&
                             is_aligned(op.sin, DType::kF32, kWidth);
    const long vectors_of_head = ceil_div(half, long{kWidth});
    with_flag(all_aligned, [&](auto aligned) {
      using Body = RotaryBody<T, decltype(aligned)::value>;
      for_each_vector<1>(queue.stream(),
                         op.x.rows,
                         op.x.cols / op.head_dim * vectors_of_head,
                         Body{Rows<T>(op.x),
                              op.cos,
                              op.sin,
                              static_cast<unsigned>(half),
                              static_cast<unsigned>(vectors_of_head),
                              static_cast<unsigned>(op.seq_length),
                              op.inverse ? -1.0F : 1.0F});
    });
  });
}

}  // namespace lockstep
