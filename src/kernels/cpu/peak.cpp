#include "kernels/cpu/peak.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/native_bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChains = 12;  // enough to hide the latency of a multiply-add on two units

// Runs kChains * rounds vector multiply-adds; *result keeps them from being left out.
// Returns the operations.
double multiply_add(long rounds, float* result) {
  const hn::ScalableTag<float> d;
  hn::Vec<hn::ScalableTag<float>> sums[kChains];
#pragma GCC unroll 16
  for (int chain = 0; chain < kChains; ++chain) {
    sums[chain] = hn::Set(d, static_cast<float>(chain));
  }
  const auto factor = hn::Set(d, 0.999F);
  const auto term = hn::Set(d, 0.001F);
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int chain = 0; chain < kChains; ++chain) {
      sums[chain] = hn::MulAdd(sums[chain], factor, term);
    }
  }
  auto sum = sums[0];
  for (int chain = 1; chain < kChains; ++chain) {
    sum = hn::Add(sum, sums[chain]);
  }
  *result = hn::GetLane(sum);
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) * static_cast<double>(rounds);
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(multiply_add);

}  // namespace

double measure_peak_operations(CpuQueue& queue, DType dtype) {
  select_instruction_set();
  constexpr int kRepetitions = 10;
  constexpr long kRounds = 50000;
  const int threads = queue.threads().num_threads();
  std::vector<float> results(static_cast<std::size_t>(threads));
  std::vector<double> rates(static_cast<std::size_t>(threads));
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    queue.threads().run(threads, [&](long task) {
      // Each thread's own best: another process that takes a core for a while then spoils little.
      const auto index = static_cast<std::size_t>(task);
      const std::int64_t begin = now_ns();
      const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, &results[index]);
      rates[index] = std::max(rates[index], operations / seconds_since(begin));
    });
  }
  const double best = std::accumulate(rates.begin(), rates.end(), 0.0);
  const bool doubled = dtype == DType::kBF16 && native_bf16_is_preferred();
  return doubled ? 2 * best : best;
}

}  // namespace lockstep
#endif
