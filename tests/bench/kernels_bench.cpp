// Prints the speed of the kernels that are not plain matrix products, on shapes of training steps.
// Usage: bench_kernels [threads]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "base/bfloat16.h"
#include "device/cpu/cpu_queue.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"

namespace lockstep {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16};

double best_seconds(const auto& run) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kEnough = std::chrono::milliseconds(150);
  double best = 1e9;
  const auto start = Clock::now();
  while (Clock::now() - start < kEnough) {
    const auto before = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - before).count());
  }
  return best;
}

// Runs kernels on one queue and prints a line for each.
class Bench {
 public:
  explicit Bench(int threads) : queue_(threads) {
    fmt::print("{:<40} {:>10} {:>10} {:>8}\n", "kernel", "us", "GFLOP/s", "GB/s");
  }

  /// Small values that differ from one element to the next; memory lives as long as the bench.
  Matrix matrix(DType dtype, long rows, long cols) {
    memory_.push_back(queue_.allocate(static_cast<std::size_t>(rows * cols) * size_of(dtype)));
    const Matrix matrix(memory_.back().data(), dtype, rows, cols);
    for (long i = 0; i < matrix.size(); ++i) {
      const float value = static_cast<float>((i * 7919) % 1009) / 1009.0F - 0.5F;
      if (dtype == DType::kBF16) {
        matrix.as<BFloat16>()[i] = to_bfloat16(value);
      } else {
        matrix.as<float>()[i] = value;
      }
    }
    return matrix;
  }

  template <typename Op>
  void measure(const std::string& shape, const Op& op) {
    const double seconds = best_seconds([&] { launch(queue_, op); });
    const Cost cost = op.cost();
    fmt::print("{:<40} {:>10.1f} {:>10.1f} {:>8.1f}\n",
               fmt::format("{} {}", Op::kName, shape),
               seconds * 1e6,
               cost.operations / seconds / 1e9,
               cost.bytes / seconds / 1e9);
  }

  void release() { memory_.clear(); }

 private:
  CpuQueue queue_;
  std::vector<Memory> memory_;
};

void measure_attention(Bench* bench, DType dtype, AttentionShape shape) {
  const long rows = shape.batch * shape.seq_length;
  const auto operand = [&](long heads) {
    return bench->matrix(dtype, rows, heads * shape.head_dim);
  };
  const std::string name = fmt::format(
      "{} {}x{}x{}x{}", name_of(dtype), shape.batch, shape.heads, shape.seq_length, shape.head_dim);
  AttentionBackward op;
  op.shape = shape;
  op.q = operand(shape.heads);
  op.k = operand(shape.kv_heads);
  op.v = operand(shape.kv_heads);
  op.out = operand(shape.heads);
  op.dout = operand(shape.heads);
  op.dq = operand(shape.heads);
  op.dk = operand(shape.kv_heads);
  op.dv = operand(shape.kv_heads);
  auto* const log_sum_exp =
      bench->matrix(DType::kF32, shape.batch * shape.heads, shape.seq_length).as<float>();
  op.log_sum_exp = log_sum_exp;
  bench->measure(name, AttentionForward{shape, op.q, op.k, op.v, op.out, log_sum_exp});
  bench->measure(name, op);
  bench->release();
}

void measure_norm(Bench* bench, DType dtype, long rows, long cols) {
  const std::string name = fmt::format("{} {}x{}", name_of(dtype), rows, cols);
  NormForward forward;
  forward.x = BlockSum(bench->matrix(dtype, rows, cols));
  forward.residual = bench->matrix(dtype, rows, cols);
  forward.sum = bench->matrix(dtype, rows, cols);
  forward.gain = bench->matrix(dtype, 1, cols);
  forward.bias = bench->matrix(dtype, 1, cols);
  forward.y = bench->matrix(dtype, rows, cols);
  forward.mean = bench->matrix(DType::kF32, 1, rows).as<float>();
  forward.rstd = bench->matrix(DType::kF32, 1, rows).as<float>();
  bench->measure(name, forward);
  NormBackward backward;
  backward.dy = BlockSum(forward.y);
  backward.x = forward.sum;
  backward.gain = forward.gain;
  backward.mean = forward.mean;
  backward.rstd = forward.rstd;
  backward.dresidual = bench->matrix(dtype, rows, cols);
  backward.dx = bench->matrix(dtype, rows, cols);
  backward.dgain = bench->matrix(DType::kF32, 1, cols).as<float>();
  backward.dbias = bench->matrix(DType::kF32, 1, cols).as<float>();
  backward.token_blocks = {rows, 1};
  bench->measure(name, backward);
  bench->release();
}

void measure_activations(Bench* bench, DType dtype, long rows, long cols) {
  const std::string name = fmt::format("{} {}x{}", name_of(dtype), rows, cols);
  const Matrix x = bench->matrix(dtype, rows, cols);
  const Matrix y = bench->matrix(dtype, rows, cols);
  const Matrix z = bench->matrix(dtype, rows, cols);
  const Matrix bias = bench->matrix(dtype, 1, cols);
  bench->measure("gelu " + name, BiasActivation{Activation::kGelu, z, bias, y});
  bench->measure("gelu " + name, ActivationBackward{Activation::kGelu, x, z, y});
  bench->measure(name, Swiglu{x, z, y});
  bench->measure(
      name,
      SwigluBackward{x, z, y, bench->matrix(dtype, rows, cols), bench->matrix(dtype, rows, cols)});
  bench->release();
}

void measure_embedding(Bench* bench, DType dtype, long rows, long cols) {
  constexpr long kVocab = 8192;
  const std::string name = fmt::format("{} {}x{}", name_of(dtype), rows, cols);
  std::vector<std::int32_t> tokens;
  for (long row = 0; row < rows; ++row) {
    tokens.push_back(static_cast<std::int32_t>(row * 7919 % kVocab));
  }
  const Matrix table = bench->matrix(dtype, kVocab, cols);
  const Matrix dtable = bench->matrix(DType::kF32, kVocab, cols);
  Embedding forward;
  forward.tokens = tokens.data();
  forward.table = {table.data, dtype, cols, kVocab, 0};
  forward.positions = bench->matrix(dtype, 64, cols);
  forward.seq_length = 64;
  forward.out = bench->matrix(dtype, rows, cols);
  bench->measure(name, forward);
  EmbeddingBackward backward;
  backward.tokens = tokens.data();
  backward.dout = forward.out;
  backward.dtable = {dtable.data, DType::kF32, cols, kVocab, 0};
  backward.dpositions = bench->matrix(DType::kF32, 64, cols);
  backward.seq_length = 64;
  bench->measure(name, backward);
  bench->release();
}

void measure_rotary(Bench* bench, DType dtype, long rows, long cols) {
  constexpr long kHeadDim = 64;
  Rotary op;
  op.x = bench->matrix(dtype, rows, cols);
  op.head_dim = kHeadDim;
  op.seq_length = 64;
  op.cos = bench->matrix(DType::kF32, 64, kHeadDim / 2).as<float>();
  op.sin = bench->matrix(DType::kF32, 64, kHeadDim / 2).as<float>();
  bench->measure(fmt::format("{} {}x{}", name_of(dtype), rows, cols), op);
  bench->release();
}

void measure_all(int threads) {
  Bench bench(threads);
  for (const DType dtype : kDTypes) {
    measure_attention(&bench, dtype, {6, 256, 6, 6, 64});
    measure_attention(&bench, dtype, {4, 64, 12, 12, 64});
    measure_attention(&bench, dtype, {1, 1024, 12, 12, 64});
    for (const auto& [rows, cols] : {std::pair{1536L, 384L}, std::pair{256L, 768L}}) {
      measure_norm(&bench, dtype, rows, cols);
      measure_activations(&bench, dtype, rows, 4 * cols);
      measure_embedding(&bench, dtype, rows, cols);
      measure_rotary(&bench, dtype, rows, cols);
    }
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::measure_all(argc > 1 ? std::atoi(argv[1]) : 1);
  return 0;
}
