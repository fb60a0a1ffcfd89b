#include "planning/kernel_timer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/philox.h"
#include "comm/accelerator.h"
#include "device/cpu/thread_pool.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace {

// Prime, so that rows and columns of no matrix repeat each other.
constexpr long kPatternElements = 1048573;
constexpr long kFewestBatches = 3;
constexpr long kMostBatches = 101;
constexpr long kMostLaunches = 2000;
constexpr std::size_t kPage = 4096;

// `to` and `from` are aligned as memory of a queue, and `bytes` is a multiple of that.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  // Stores that pass the caches: others read the line first, which the copy's bytes do not count.
  for (std::size_t i = 0; i < bytes; i += sizeof(__m128i)) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + i);
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_load_si128(source));
  }
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

// By all threads, a contiguous part each.
void copy_on_host(ThreadPool& threads, std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto parts = static_cast<std::size_t>(threads.num_threads());
  const std::size_t part = round_up(ceil_div(bytes, parts), kPage);
  threads.run(static_cast<long>(parts), [&](long task) {
    const std::size_t begin = std::min(bytes, static_cast<std::size_t>(task) * part);
    stream_copy(to + begin, from + begin, std::min(part, bytes - begin));
  });
}

}  // namespace

double DeviceLimits::least_seconds(Cost cost) const {
  return std::max(cost.bytes / bytes_per_second, cost.operations / operations_per_second);
}

KernelTimer::KernelTimer(Queue& queue, const TimingEffort& effort)
    : queue_(queue), effort_(effort), pattern_(kPatternElements) {
  LOCKSTEP_CHECK(queue.kind() != DeviceKind::kDry);
  RandomStream(1, RandomPurpose::kTest, site_of("kernel timer")).fill_uniform(0, pattern_);
  rounded_pattern_.reserve(pattern_.size());
  for (float& value : pattern_) {
    value -= 0.5F;
    rounded_pattern_.push_back(to_bfloat16(value));
  }
  seconds_.reserve(kMostBatches);
}

void KernelTimer::fill(const Matrix& matrix) {
  const bool rounded = matrix.dtype == DType::kBF16;
  const void* const from = rounded ? static_cast<const void*>(rounded_pattern_.data())
                                   : static_cast<const void*>(pattern_.data());
  for (long done = 0; done < matrix.size(); done += kPatternElements) {
    const long count = std::min(kPatternElements, matrix.size() - done);
    queue_.copy_to_device(
        matrix.as<std::byte>() + bytes_of(done, matrix.dtype), from, bytes_of(count, matrix.dtype));
  }
}

Matrix KernelTimer::zero_matrix(DType dtype, long rows, long cols) {
  memory_.push_back(queue_.allocate(bytes_of(rows * cols, dtype)));
  return {memory_.back().data(), dtype, rows, cols};
}

Matrix KernelTimer::matrix(DType dtype, long rows, long cols) {
  const Matrix matrix = zero_matrix(dtype, rows, cols);
  fill(matrix);
  return matrix;
}

std::int32_t* KernelTimer::ids(long count, long end) {
  const RandomStream random(1, RandomPurpose::kTest, site_of("ids of the kernel timer"));
  std::vector<std::int32_t> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int32_t>(random.bits(i) % static_cast<std::uint32_t>(end));
  }
  const std::size_t bytes = bytes_of(count, DType::kI32);
  memory_.push_back(queue_.allocate(bytes));
  queue_.copy_to_device(memory_.back().data(), all.data(), bytes);
  return memory_.back().as<std::int32_t>();
}

void KernelTimer::release() {
  queue_.synchronize();
  memory_.clear();
}

double KernelTimer::seconds_of(FunctionRef<void()> once, long launches) {
  queue_.synchronize();
  const std::int64_t begin = now_ns();
  for (long i = 0; i < launches; ++i) {
    once();
  }
  queue_.synchronize();
  return seconds_since(begin) / static_cast<double>(launches);
}

Timing KernelTimer::time(FunctionRef<void()> once) {
  once();  // takes scratch memory, loads libraries
  const double first = seconds_of(once, 1);
  const auto taken = [this] { return queue_.allocated_bytes() + queue_.workspace_bytes(); };
  const std::size_t before = taken();
  const auto times = [](double whole, double part, long least, long most) {
    return std::clamp(static_cast<long>(std::min(std::ceil(whole / part), 1e9)), least, most);
  };
  Timing timing;
  timing.launches = times(effort_.batch_seconds, first, 1, kMostLaunches);
  const double batch = seconds_of(once, timing.launches) * static_cast<double>(timing.launches);
  timing.batches = times(effort_.kernel_seconds, batch, kFewestBatches, kMostBatches);
  seconds_.clear();
  for (long i = 0; i < timing.batches; ++i) {
    seconds_.push_back(seconds_of(once, timing.launches));
  }
  LOCKSTEP_CHECK(taken() == before);
  std::sort(seconds_.begin(), seconds_.end());
  timing.median_seconds = seconds_[seconds_.size() / 2];
  timing.least_seconds = seconds_.front();
  timing.most_seconds = seconds_.back();
  return timing;
}

double KernelTimer::copy_rate(std::size_t bytes) {
  const auto elements = static_cast<long>(bytes / sizeof(float));
  auto* const from = matrix(DType::kF32, 1, elements).as<std::byte>();
  auto* const to = zero_matrix(DType::kF32, 1, elements).as<std::byte>();
  const Timing copy = time([&] {
    if (queue_.kind() == DeviceKind::kCuda) {
      accelerator()->copy_on_device(queue_, to, from, bytes);
    } else {
      copy_on_host(*queue_.host_threads(), to, from, bytes);
    }
  });
  release();
  return 2 * static_cast<double>(bytes) / copy.median_seconds;
}

DeviceLimits KernelTimer::measure_limits(std::size_t copied_bytes,
                                         long product_size,
                                         DType product_dtype) {
  DeviceLimits limits;
  limits.copied_bytes = round_up(copied_bytes, kMemoryAlignment);
  limits.product_size = product_size;
  limits.product_dtype = product_dtype;
  limits.bytes_per_second = copy_rate(limits.copied_bytes);
  const MatMul product{.a = matrix(product_dtype, product_size, product_size),
                       .b = matrix(product_dtype, product_size, product_size),
                       .transpose_b = true,
                       .c = zero_matrix(product_dtype, product_size, product_size)};
  const Timing timing = time([&] { launch(queue_, product); });
  release();
  limits.operations_per_second = product.cost().operations / timing.median_seconds;
  return limits;
}

}  // namespace lockstep
