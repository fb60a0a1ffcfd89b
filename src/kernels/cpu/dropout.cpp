#include "kernels/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
// After foreach_target: what is compiled once an instruction set.
#include <hwy/highway.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/row_pieces.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

/// Elements whose words one call of `philox` gives.
constexpr long kElements = 4 * kCounters;

// The factors of elements [first, first + kElements) of a row.
HWY_INLINE void fill_factors(
    const DropoutMask& mask, long sample, long token, long first, float* factors) {
  const CounterWords random =
      philox({{hn::Set(kBits64Tag, mask.step),
               splat_counter(sample),
               splat_counter(token),
               hn::Iota(kBits64Tag, static_cast<std::uint64_t>(first / 4))}},
             mask.key);
  HWY_ALIGN std::uint32_t words[kElements];
  hn::StoreInterleaved2(hn::BitCast(kBits64Tag, alternate(random.word[0], random.word[1])),
                        hn::BitCast(kBits64Tag, alternate(random.word[2], random.word[3])),
                        kBits64Tag,
                        reinterpret_cast<std::uint64_t*>(words));
  for (long i = 0; i < kElements; i += kLanes) {
    hn::Store(factors_of(mask, hn::Load(kBits32Tag, words + i)), kF32Tag, factors + i);
  }
}

template <typename T>
void drop_row(const Dropout& op, const DropoutMask& mask, long row) {
  const long sample = op.rows.first_sample + row / op.rows.tokens;
  const long token = op.rows.first_token + row % op.rows.tokens;
  const T* const x = op.x.row<T>(row);
  T* const y = op.y.row<T>(row);
  HWY_ALIGN float factors[kElements];
  for_each_vector(op.x.cols, [&](long i, auto lanes) HWY_ATTR {
    if (i % kElements == 0) {
      fill_factors(mask, sample, token, i, factors);
    }
    const VecF32 factor = hn::Load(kF32Tag, factors + i % kElements);
    const VecF32 product = hn::Mul(load(x + i, lanes), factor);
    // Not the product with 0, which is no number where x is infinite.
    const auto kept = hn::Gt(factor, hn::Zero(kF32Tag));
    store(hn::IfThenElseZero(kept, product), y + i, lanes);
  });
}

void dropout(CpuQueue& queue, const Dropout& op) {
  const DropoutMask mask = op.source.mask();
  for_each_row(queue.threads(), op.x.rows, op.x.cols, [&](long row) {
    if (op.x.dtype == DType::kBF16) {
      drop_row<BFloat16>(op, mask, row);
    } else {
      drop_row<float>(op, mask, row);
    }
  });
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {
HWY_EXPORT(dropout);
}  // namespace

void run_on_cpu(CpuQueue& queue, const Dropout& op) {
  HWY_DYNAMIC_DISPATCH(dropout)(queue, op);
}

}  // namespace lockstep
#endif
