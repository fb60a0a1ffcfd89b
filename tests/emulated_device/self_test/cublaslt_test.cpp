#include <cmath>
#include <random>

#include <cublasLt.h>

#include "emulated_device/self_test/device_memory.h"
#include "support/catch.h"

namespace lockstep::self_test {
namespace {

std::vector<float> draw(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) {
    value = uniform(random);
  }
  return values;
}

// d[m x n] = a[k x m]^T b[k x n], all by columns.
class Product {
 public:
  Product(int m, int n, int k) {
    cublasLtCreate(&handle_);
    cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t turn = CUBLAS_OP_T;
    REQUIRE(set(CUBLASLT_MATMUL_DESC_TRANSA, turn) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatrixLayoutCreate(
        &a_, CUDA_R_32F, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(m), k);
    cublasLtMatrixLayoutCreate(
        &b_, CUDA_R_32F, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n), k);
    cublasLtMatrixLayoutCreate(
        &d_, CUDA_R_32F, static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(n), m);
    cublasLtMatmulPreferenceCreate(&preference_);
  }
  ~Product() {
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatrixLayoutDestroy(d_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatmulDescDestroy(desc_);
    cublasLtDestroy(handle_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <typename T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, T value) {
    return cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> algorithms(std::uint64_t workspace_bytes) {
    cublasLtMatmulPreferenceSetAttribute(preference_,
                                         CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace_bytes,
                                         sizeof workspace_bytes);
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(
        handle_, desc_, a_, b_, d_, d_, preference_, 8, results.data(), &count);
    results.resize(static_cast<std::size_t>(count));
    return results;
  }

  cublasStatus_t run(const float* a,
                     const float* b,
                     float* d,
                     float beta,
                     const cublasLtMatmulAlgo_t* algorithm,
                     void* workspace,
                     std::size_t workspace_bytes) {
    const float one = 1.0F;
    return cublasLtMatmul(handle_,
                          desc_,
                          &one,
                          a,
                          a_,
                          b,
                          b_,
                          &beta,
                          d,
                          d_,
                          d,
                          d_,
                          algorithm,
                          workspace,
                          workspace_bytes,
                          nullptr);
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr;
  cublasLtMatrixLayout_t d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

constexpr int kM = 12;
constexpr int kN = 20;
constexpr int kK = 144;

double dot(const std::vector<float>& a, const std::vector<float>& b, int row, int col) {
  double sum = 0;
  for (int i = 0; i < kK; ++i) {
    sum += static_cast<double>(a[row * kK + i]) * b[col * kK + i];
  }
  return sum;
}

// Terms are below 1; rounding of their f32 sum.
constexpr double kTolerance = kK * 6e-8 * kK / 8.0;

TEST_CASE("every algorithm of cuBLASLt gives the product, with bits of its own") {
  const std::vector<float> a = draw(kM * kK, 1);
  const std::vector<float> b = draw(kN * kK, 2);
  const DeviceValues<float> device_a(a);
  const DeviceValues<float> device_b(b);
  const DeviceValues<float> workspace(1 << 14U);
  Product product(kM, kN, kK);
  const auto algorithms = product.algorithms(4 << 14U);
  REQUIRE(algorithms.size() == 4);
  REQUIRE(product.algorithms(0).size() == 3);  // one of them needs a workspace

  std::vector<std::vector<float>> results;
  for (const auto& found : algorithms) {
    const DeviceValues<float> d(std::vector<float>(kM * kN, 1.0F));
    REQUIRE(product.run(device_a.data(),
                        device_b.data(),
                        d.data(),
                        2.0F,
                        &found.algo,
                        workspace.data(),
                        4 << 14U) == CUBLAS_STATUS_SUCCESS);
    results.push_back(d.download());
    for (int row = 0; row < kM; ++row) {
      for (int col = 0; col < kN; ++col) {
        REQUIRE(std::abs(results.back()[col * kM + row] - (dot(a, b, row, col) + 2.0)) <=
                kTolerance);
      }
    }
  }
  REQUIRE(results[0] != results[1]);
}

TEST_CASE(
    "an algorithm is refused a workspace that is too small and operands that it cannot read") {
  const DeviceValues<float> a(kM * kK + 1);
  const DeviceValues<float> b(kN * kK);
  const DeviceValues<float> d(kM * kN);
  Product product(kM, kN, kK);
  const DeviceValues<float> workspace(1 << 14U);
  bool has_workspace = false;
  bool has_alignment = false;
  for (const auto& found : product.algorithms(4 << 14U)) {
    const cublasStatus_t shifted = product.run(
        a.data() + 1, b.data(), d.data(), 0.0F, &found.algo, workspace.data(), found.workspaceSize);
    has_alignment = has_alignment || shifted == CUBLAS_STATUS_NOT_SUPPORTED;
    if (found.workspaceSize > 0) {
      has_workspace = true;
      REQUIRE(product.run(a.data(), b.data(), d.data(), 0.0F, &found.algo, d.data(), 4) ==
              CUBLAS_STATUS_INVALID_VALUE);
    }
    if (shifted == CUBLAS_STATUS_SUCCESS && found.workspaceSize > 0) {
      break;
    }
  }
  cudaDeviceSynchronize();
  REQUIRE(has_workspace);
  REQUIRE(has_alignment);
}

TEST_CASE("epilogues of cuBLASLt add a bias, keep what GELU had, and sum gradients of biases") {
  const std::vector<float> a = draw(kM * kK, 3);
  const std::vector<float> b = draw(kN * kK, 4);
  const std::vector<float> bias = draw(kM, 5);
  const DeviceValues<float> device_a(a);
  const DeviceValues<float> device_b(b);
  const DeviceValues<float> device_bias(bias);
  const DeviceValues<float> aux(kM * kN);
  const DeviceValues<float> d(kM * kN);
  Product product(kM, kN, kK);
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
  product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device_bias.data());
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data());
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{kM});

  REQUIRE(product.run(device_a.data(), device_b.data(), d.data(), 0.0F, nullptr, nullptr, 0) ==
          CUBLAS_STATUS_SUCCESS);
  const std::vector<float> before = aux.download();
  const std::vector<float> after = d.download();
  product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{CUBLASLT_EPILOGUE_DGELU_BGRAD});
  REQUIRE(product.run(device_a.data(), device_b.data(), d.data(), 0.0F, nullptr, nullptr, 0) ==
          CUBLAS_STATUS_SUCCESS);
  const std::vector<float> gradient = d.download();
  const std::vector<float> bias_gradient = device_bias.download();

  for (int row = 0; row < kM; ++row) {
    double sum = 0;
    for (int col = 0; col < kN; ++col) {
      const std::size_t at = static_cast<std::size_t>(col) * kM + static_cast<std::size_t>(row);
      const double x = dot(a, b, row, col) + bias[static_cast<std::size_t>(row)];
      const double inner = std::sqrt(2.0 / 3.14159265358979) * (x + 0.044715 * x * x * x);
      const double slope = 0.5 * (1 + std::tanh(inner)) +
                           0.5 * x * (1 - std::pow(std::tanh(inner), 2)) *
                               std::sqrt(2.0 / 3.14159265358979) * (1 + 3 * 0.044715 * x * x);
      REQUIRE(std::abs(before[at] - x) <= kTolerance);
      REQUIRE(std::abs(after[at] - 0.5 * x * (1 + std::tanh(inner))) <= 2 * kTolerance);
      REQUIRE(std::abs(gradient[at] - dot(a, b, row, col) * slope) <= 20 * kTolerance);
      sum += gradient[at];
    }
    REQUIRE(std::abs(bias_gradient[static_cast<std::size_t>(row)] - sum) <= kN * kTolerance);
  }
}

TEST_CASE("operands that do not fit together are refused") {
  Product product(kM, kN, kK);
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  const DeviceValues<float> x(kK * kK);
  REQUIRE(product.run(x.data(), x.data(), x.data(), 0.0F, nullptr, nullptr, 0) ==
          CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace lockstep::self_test
