// Prints, as one JSON object, what this processor can do at most: multiply-adds from registers (f32 and
// bf16 dot products) in GFLOP/s and memory traffic in GB/s, for each number of threads of the command line.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <immintrin.h>
#include <spdlog/fmt/fmt.h>
#include <sys/mman.h>

namespace {

constexpr int kRounds = 9;
constexpr long kIterations = 4'000'000;
// Each array is larger than the caches, those of a shared host too.
constexpr long kArrayElements = 128L << 20;
// Sums that do not depend on each other: enough for two units of 4 cycles latency (6 for the dot
// product), and few enough for the registers.
constexpr int kSums = 12;

// Read through volatile, so that the compiler cannot compute with them.
volatile float one_half = 0.5F;
volatile float sink = 0;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Function>
double median_seconds(const Function& function) {
  function();
  std::array<double, kRounds> seconds{};
  for (double& value : seconds) {
    const double start = seconds_now();
    function();
    value = seconds_now() - start;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRounds / 2];
}

// One multiply-add of a vector for each sum and iteration.
__attribute__((target("avx512f"))) void multiply_add_avx512() {
  const __m512 factor = _mm512_set1_ps(one_half);
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) {
    sums[i] = factor;
  }
  for (long iteration = 0; iteration < kIterations; ++iteration) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_fmadd_ps(factor, sums[i], factor);
    }
  }
  for (int i = 1; i < kSums; ++i) {
    sums[0] = _mm512_add_ps(sums[0], sums[i]);
  }
  sink = _mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx2,fma"))) void multiply_add_avx2() {
  const __m256 factor = _mm256_set1_ps(one_half);
  __m256 sums[kSums];
  for (int i = 0; i < kSums; ++i) {
    sums[i] = factor;
  }
  for (long iteration = 0; iteration < kIterations; ++iteration) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm256_fmadd_ps(factor, sums[i], factor);
    }
  }
  for (int i = 1; i < kSums; ++i) {
    sums[0] = _mm256_add_ps(sums[0], sums[i]);
  }
  sink = _mm256_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f,avx512bf16"))) void dot_bf16_avx512() {
  const __m512 half = _mm512_set1_ps(one_half);
  const __m512bh factor = _mm512_cvtne2ps_pbh(half, half);
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) {
    sums[i] = half;
  }
  for (long iteration = 0; iteration < kIterations; ++iteration) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], factor, factor);
    }
  }
  for (int i = 1; i < kSums; ++i) {
    sums[0] = _mm512_add_ps(sums[0], sums[i]);
  }
  sink = _mm512_cvtss_f32(sums[0]);
}

struct Instructions {
  std::string name;
  void (*run)() = nullptr;
  double flop_of_an_instruction = 0;
};

Instructions f32_instructions() {
  if (__builtin_cpu_supports("avx512f")) {
    return {"avx512", multiply_add_avx512, 2 * 16};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"avx2", multiply_add_avx2, 2 * 8};
  }
  return {};
}

Instructions bf16_instructions() {
  if (__builtin_cpu_supports("avx512bf16")) {
    return {"avx512_bf16", dot_bf16_avx512, 2 * 32};
  }
  return {};
}

double gflops(const Instructions& instructions, int threads) {
  const double seconds = median_seconds([&] {
#pragma omp parallel num_threads(threads)
    instructions.run();
  });
  return 1e-9 * threads * kSums * instructions.flop_of_an_instruction *
         static_cast<double>(kIterations) / seconds;
}

struct Slice {
  long begin = 0;
  long end = 0;
};

Slice slice_of(int thread, int threads) {
  constexpr long kAlignment = 64;
  const long width = kArrayElements / threads / kAlignment * kAlignment;
  return {thread * width, thread + 1 == threads ? kArrayElements : (thread + 1) * width};
}

class Array {
 public:
  Array()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) {
      fmt::print(stderr, "machine_limits: no memory for {} bytes\n", kBytes);
      std::exit(3);
    }
    madvise(memory_, kBytes, MADV_HUGEPAGE);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { munmap(memory_, kBytes); }

  float* data() { return static_cast<float*>(memory_); }

 private:
  static constexpr std::size_t kBytes = kArrayElements * sizeof(float);
  void* memory_;
};

void read(const float* x, Slice slice) {
  constexpr int kStep = 16;
  __m128 sums[4] = {_mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps()};
  for (long i = slice.begin; i < slice.end; i += kStep) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      sums[j] = _mm_add_ps(sums[j], _mm_load_ps(x + i + 4L * j));
    }
  }
  sink = _mm_cvtss_f32(_mm_add_ps(_mm_add_ps(sums[0], sums[1]), _mm_add_ps(sums[2], sums[3])));
}

// out = x + y / 2 with stores that do not read the lines of `out` first.
void stream(float* out, const float* x, const float* y, Slice slice) {
  const __m128 factor = _mm_set1_ps(one_half);
  for (long i = slice.begin; i < slice.end; i += 4) {
    _mm_stream_ps(out + i, _mm_add_ps(_mm_load_ps(x + i), _mm_mul_ps(factor, _mm_load_ps(y + i))));
  }
  _mm_sfence();
}

struct Bandwidth {
  double read = 0;
  double stream = 0;
};

Bandwidth gigabytes_per_second(int threads) {
  std::array<Array, 3> arrays;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int thread = 0; thread < threads; ++thread) {
    const Slice slice = slice_of(thread, threads);
    for (Array& array : arrays) {
      std::fill(array.data() + slice.begin, array.data() + slice.end, 1.0F);
    }
  }
  const double reading = median_seconds([&] {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int thread = 0; thread < threads; ++thread) {
      read(arrays[0].data(), slice_of(thread, threads));
    }
  });
  const double streaming = median_seconds([&] {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int thread = 0; thread < threads; ++thread) {
      stream(arrays[0].data(), arrays[1].data(), arrays[2].data(), slice_of(thread, threads));
    }
  });
  constexpr double kGigabytes = 1e-9 * kArrayElements * sizeof(float);
  return {kGigabytes / reading, 3 * kGigabytes / streaming};
}

std::string limits(int threads) {
  const Instructions f32 = f32_instructions();
  const Instructions bf16 = bf16_instructions();
  const auto peak = [&](const Instructions& instructions) {
    return instructions.run == nullptr ? "null"
                                       : fmt::format("{:.1f}", gflops(instructions, threads));
  };
  const Bandwidth bandwidth = gigabytes_per_second(threads);
  return fmt::format(R"({{"threads":{},"f32":"{}","f32_gflops":{},"bf16":"{}","bf16_gflops":{},)"
                     R"("read_gb_per_second":{:.1f},"stream_gb_per_second":{:.1f}}})",
                     threads,
                     f32.name,
                     peak(f32),
                     bf16.name,
                     peak(bf16),
                     bandwidth.read,
                     bandwidth.stream);
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  std::vector<std::string> lines;
  for (const char* argument : arguments.subspan(1)) {
    const int threads = std::atoi(argument);
    if (threads < 1) {
      fmt::print(stderr, "machine_limits: '{}' is not a number of threads\n", argument);
      return 2;
    }
    lines.push_back(limits(threads));
  }
  fmt::print("[{}]\n", fmt::join(lines, ",\n "));
  return 0;
}
