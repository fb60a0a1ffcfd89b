// Prints the speed of the matrix products of training steps, beside the peak of this processor.
#include <algorithm>
#include <limits>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <time.h>

#include "device/cpu/cpu_queue.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace {

struct Case {
  const char* name;
  long m;
  long n;
  long k;
  bool transpose_a;
  bool transpose_b;
  bool accumulate;
};

constexpr Case kCases[] = {
    {"forward qkv", 1536, 1152, 384, false, true, false},
    {"forward projection", 1536, 384, 384, false, true, false},
    {"forward up", 1536, 1536, 384, false, true, false},
    {"forward down", 1536, 384, 1536, false, true, false},
    {"forward half up", 768, 1536, 384, false, true, false},
    {"forward half down", 768, 384, 1536, false, true, false},
    {"forward qkv 124M", 256, 2304, 768, false, true, false},
    {"forward projection 124M", 256, 768, 768, false, true, false},
    {"forward up 124M", 256, 3072, 768, false, true, false},
    {"forward down 124M", 256, 768, 3072, false, true, false},
    {"logits 124M", 256, 50257, 768, false, true, false},
    {"logits 65", 1536, 65, 384, false, true, false},
    {"dx up", 1536, 384, 1536, false, false, false},
    {"dx down", 1536, 1536, 384, false, false, false},
    {"dx up 124M", 256, 768, 3072, false, false, false},
    {"dx logits 124M", 256, 768, 50257, false, false, false},
    {"dw up", 1536, 384, 1536, true, false, true},
    {"dw qkv", 1152, 384, 1536, true, false, true},
    {"dw down", 384, 1536, 1536, true, false, true},
    {"dw up 124M", 3072, 768, 256, true, false, true},
    {"dw logits 124M", 50257, 768, 256, true, false, true},
    {"mlp forward 32", 32, 10, 784, false, true, false},
    {"mlp forward 64", 64, 10, 784, false, true, false},
    {"mlp dw 32", 10, 784, 32, true, false, false},
    {"mlp dw 64", 10, 784, 64, true, false, false},
};

// Seconds on this clock. One thread is timed by what it used, so that other work on the machine
// disturbs less; several by the wall.
double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_per_call(CpuQueue& queue, const MatMul& op) {
  constexpr double kRoundSeconds = 0.01;
  constexpr int kRounds = 9;
  const bool alone = queue.threads().num_threads() == 1;
  const clockid_t clock = alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  launch(queue, op);
  double best = std::numeric_limits<double>::infinity();
  long repeats = 1;
  for (int round = 0; round < kRounds; ++round) {
    const double start = seconds_of(clock);
    for (long repeat = 0; repeat < repeats; ++repeat) {
      launch(queue, op);
    }
    best = std::min(best, (seconds_of(clock) - start) / static_cast<double>(repeats));
    repeats = std::max(1L, static_cast<long>(kRoundSeconds / best));
  }
  return best;
}

// One register block on operands that stay in the first cache.
double peak_gflops() {
  const GemmStrips strips = gemm_strips();
  const long inner = 128;
  Memory memory = allocate_host(static_cast<std::size_t>(inner * (strips.a.width + strips.b.width) +
                                                         strips.a.outer * strips.b.outer) *
                                sizeof(float));
  auto* base = memory.as<float>();
  StripProduct p;
  p.a = base;
  p.a_strip_rows = strips.a.outer;
  p.a_outer_stride = 1;
  p.a_inner_stride = strips.a.width;
  p.b = base + inner * strips.a.width;
  p.c = base + inner * (strips.a.width + strips.b.width);
  p.rows = strips.a.outer;
  p.cols = strips.b.outer;
  p.inner = inner;
  p.c_stride = p.cols;
  double best = 0;
  constexpr int kRepeats = 2000;
  for (int round = 0; round < 20; ++round) {
    const double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      multiply_strips(p);
    }
    const double seconds = seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
    best = std::max(best, 2e-9 * kRepeats * static_cast<double>(p.rows * p.cols * inner) / seconds);
  }
  return best;
}

void run(DType dtype) {
  CpuQueue one(1);
  CpuQueue two(2);
  for (const Case& c : kCases) {
    const long elements = std::max({c.m * c.k, c.n * c.k, c.m * c.n});
    Memory memory = allocate_host(static_cast<std::size_t>(elements) * 3 * sizeof(float));
    auto* data = memory.as<float>();
    if (dtype == DType::kF32) {
      for (long i = 0; i < 2 * elements; ++i) {
        data[i] = static_cast<float>(i % 7) - 3.0F;
      }
    }
    const bool f32_result = dtype == DType::kF32 || c.accumulate || c.n == 50257;
    MatMul op;
    op.a = c.transpose_a ? Matrix(data, dtype, c.k, c.m) : Matrix(data, dtype, c.m, c.k);
    op.b = c.transpose_b ? Matrix(data + elements, dtype, c.n, c.k)
                         : Matrix(data + elements, dtype, c.k, c.n);
    op.c = Matrix(data + 2 * elements, f32_result ? DType::kF32 : dtype, c.m, c.n);
    op.transpose_a = c.transpose_a;
    op.transpose_b = c.transpose_b;
    op.accumulate = c.accumulate;
    const double flops = op.cost().operations;
    const double alone = seconds_per_call(one, op);
    const double together = seconds_per_call(two, op);
    fmt::print("{:5} {:24} {:5} x {:5} x {:5} {:10.1f} us {:7.1f} {:7.1f} GFLOP/s\n",
               name_of(dtype),
               c.name,
               c.m,
               c.n,
               c.k,
               alone * 1e6,
               flops / alone * 1e-9,
               flops / together * 1e-9);
  }
}

}  // namespace
}  // namespace lockstep

int main() {
  lockstep::select_instruction_set();
  fmt::print("{}, one thread in registers: {:.1f} GFLOP/s; columns: 1 and 2 threads\n",
             lockstep::instruction_set_name(),
             lockstep::peak_gflops());
  lockstep::run(lockstep::DType::kF32);
  lockstep::run(lockstep::DType::kBF16);
}
