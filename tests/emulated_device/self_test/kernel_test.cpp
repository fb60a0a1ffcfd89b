#include <cmath>
#include <random>

#include "emulated_device/self_test/device_memory.h"
#include "emulated_device/self_test/kernels.h"
#include "support/catch.h"

namespace lockstep::self_test {
namespace {

std::vector<float> draw(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
  std::vector<float> values(count);
  for (float& value : values) {
    value = uniform(random);
  }
  return values;
}

// Rounding of a sum of `length` f32 terms near 1, with room.
double tolerance(int length) {
  return 4.0 * std::sqrt(static_cast<double>(length)) * 6e-8;
}

TEST_CASE("a layer norm with block sums is computed") {
  const int threads = GENERATE(32, 96, 256);
  const int rows = 5;
  const int cols = 204;
  const std::vector<float> in = draw(rows * cols, 1);
  const DeviceValues<float> device_in(in);
  const DeviceValues<float> device_out(in.size());

  layer_norm(nullptr, device_out.data(), device_in.data(), rows, cols, threads);

  const std::vector<float> out = device_out.download();
  for (int row = 0; row < rows; ++row) {
    double mean = 0;
    double variance = 0;
    for (int i = 0; i < cols; ++i) {
      mean += in[row * cols + i] / static_cast<double>(cols);
    }
    for (int i = 0; i < cols; ++i) {
      variance += std::pow(in[row * cols + i] - mean, 2) / cols;
    }
    for (int i = 0; i < cols; ++i) {
      const double expected = (in[row * cols + i] - mean) / std::sqrt(variance + 1e-5);
      REQUIRE(std::abs(out[row * cols + i] - expected) <=
              tolerance(cols) * (1 + std::abs(expected)));
    }
  }
}

TEST_CASE("a softmax of rows in shared memory with an atomic total is computed") {
  const int rows = 7;
  const int cols = 301;
  const std::vector<float> in = draw(rows * cols, 2);
  const DeviceValues<float> device_in(in);
  const DeviceValues<float> device_out(in.size());
  const DeviceValues<float> device_total(1);

  softmax(nullptr, device_out.data(), device_total.data(), device_in.data(), rows, cols);

  const std::vector<float> out = device_out.download();
  REQUIRE(std::abs(device_total.download()[0] - rows) <= rows * tolerance(cols));
  for (int row = 0; row < rows; ++row) {
    double sum = 0;
    for (int i = 0; i < cols; ++i) {
      sum += std::exp(static_cast<double>(in[row * cols + i]));
    }
    for (int i = 0; i < cols; ++i) {
      const double expected = std::exp(static_cast<double>(in[row * cols + i])) / sum;
      REQUIRE(std::abs(out[row * cols + i] - expected) <= tolerance(cols) * expected * 4);
    }
  }
}

TEST_CASE("a product by tensor cores from asynchronously copied tiles is computed") {
  const int m = 32;
  const int n = 48;
  const int k = GENERATE(32, 160);
  std::vector<__nv_bfloat16> a;
  std::vector<__nv_bfloat16> b;
  for (const float value : draw(static_cast<std::size_t>(m) * k, 3)) {
    a.push_back(__float2bfloat16(value));
  }
  for (const float value : draw(static_cast<std::size_t>(n) * k, 4)) {
    b.push_back(__float2bfloat16(value));
  }
  const DeviceValues<__nv_bfloat16> device_a(a);
  const DeviceValues<__nv_bfloat16> device_b(b);
  const DeviceValues<float> device_c(static_cast<std::size_t>(m) * n);

  product(nullptr, device_c.data(), device_a.data(), device_b.data(), m, n, k);

  const std::vector<float> c = device_c.download();
  for (int row = 0; row < m; ++row) {
    for (int col = 0; col < n; ++col) {
      double expected = 0;
      double size = 0;
      for (int i = 0; i < k; ++i) {
        const double term = static_cast<double>(__bfloat162float(a[row * k + i])) *
                            __bfloat162float(b[col * k + i]);
        expected += term;
        size += std::abs(term);
      }
      REQUIRE(std::abs(c[row * n + col] - expected) <= tolerance(k) * size);
    }
  }
}

TEST_CASE("lanes of a warp get what shuffles, votes and reductions give") {
  const DeviceValues<std::uint32_t> device_out(32 * kWarpNumbers);

  warp_functions(nullptr, device_out.data());

  const std::vector<std::uint32_t> out = device_out.download();
  std::uint32_t thirds = 0;
  std::uint32_t squares = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    thirds |= lane % 3 == 0 ? 1U << lane : 0;
    squares ^= lane * lane;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    const std::vector<std::uint32_t> mine(out.begin() + lane * kWarpNumbers,
                                          out.begin() + (lane + 1) * kWarpNumbers);
    const std::vector<std::uint32_t> expected = {5,
                                                 lane / 8 * 8 + 3,
                                                 lane < 2 ? lane : lane - 2,
                                                 lane % 16 < 14 ? lane + 2 : lane,
                                                 lane ^ 1U,
                                                 thirds,
                                                 1,
                                                 0xffU << lane / 8 * 8,
                                                 496,
                                                 0,
                                                 static_cast<std::uint32_t>(-31),
                                                 squares,
                                                 lane < 16 ? 15U : 0U,
                                                 16};
    REQUIRE(mine == expected);
  }
}

TEST_CASE("blocks add to the same words atomically") {
  const DeviceValues<unsigned> sums(3);

  count_up(nullptr, sums.data(), 3, 10, 33);

  REQUIRE(sums.download() == std::vector<unsigned>{110, 110, 110});
}

TEST_CASE("a launch that no device could do is refused") {
  const DeviceValues<float> x(1);
  REQUIRE_THROWS(layer_norm(nullptr, x.data(), x.data(), 1, 4, 1056));
  REQUIRE_THROWS(softmax(nullptr, x.data(), x.data(), x.data(), 1, 60000));
  REQUIRE_THROWS(layer_norm(nullptr, x.data(), x.data(), 0, 4, 32));
  cudaGetLastError();
}

}  // namespace
}  // namespace lockstep::self_test
