// Dropout of activations.
#include "base/bfloat16.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/dropout.h"

namespace lockstep {
namespace {

// Reads x and writes y: 25 MB at 8 x 1024 tokens, 768 features in bf16, 5.2 us at 4.8 TB/s. A call of Philox for every
// four elements, about 70 integer operations: 6.3 M elements take 110 M operations, 7 us of an H200's 16 T/s.
template <typename T, bool kAligned>
struct DropoutBody {
  static constexpr int kWidth = kVectorWidth<T>;
  Rows<const T> x;
  Rows<T> y;
  DropoutMask mask;
  SampleRows rows;

  __device__ void operator()(long row, long col, int count) const {
    const long sample = rows.first_sample + row / rows.tokens;
    const long token = rows.first_token + row % rows.tokens;
    Floats<kWidth> values = load_floats<kAligned, kWidth>(x.at(row, col), count);
#pragma unroll
    for (int first = 0; first < kWidth; first += 4) {
      const auto words = mask.words(sample, token, (col + first) / 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& value = values.at[first + i];
        value = words[static_cast<std::size_t>(i)] < mask.threshold ? 0.0F : value * mask.scale;
      }
    }
    store_floats<kAligned>(values, y.at(row, col), count);
  }
};

}  // namespace

void run_on_cuda(CudaQueue& queue, const Dropout& op) {
  with_type(op.x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kWidth = kVectorWidth<T>;
    with_flag(is_aligned(op.x, kWidth) && is_aligned(op.y, kWidth), [&](auto aligned) {
      for_each_vector<kWidth>(queue.stream(),
                              op.x.rows,
                              op.x.cols,
                              DropoutBody<T, decltype(aligned)::value>{
                                  Rows<const T>(op.x), Rows<T>(op.y), op.source.mask(), op.rows});
    });
  });
}

}  // namespace lockstep
