// What the emulated cuBLASLt keeps in NVIDIA's opaque descriptors.
#pragma once

#include <cstdint>

#include <cublasLt.h>

namespace lockstep::emulated {

struct BlasMatrix {
  cudaDataType_t type = CUDA_R_32F;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t stride = 0;  ///< leading dimension
  std::int32_t batches = 1;
  std::int64_t batch_stride = 0;
};
static_assert(sizeof(BlasMatrix) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct BlasProduct {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int32_t bias_type = -1;  ///< -1: that of the result
  void* aux = nullptr;
  std::int64_t aux_stride = 0;
  std::int32_t aux_type = -1;
  std::int8_t fast_accumulation = 0;
  const void* a_scale = nullptr;
  const void* b_scale = nullptr;
  const void* c_scale = nullptr;
  const void* d_scale = nullptr;
};
static_assert(sizeof(BlasProduct) <= sizeof(cublasLtMatmulDescOpaque_t));

struct BlasPreference {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t a_alignment = 256;
  std::uint32_t b_alignment = 256;
  std::uint32_t c_alignment = 256;
  std::uint32_t d_alignment = 256;
};
static_assert(sizeof(BlasPreference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

/// Ways to sum, which give different bits: `split` parts of the inner dimension, each in `piece` terms at a time.
struct BlasAlgorithm {
  std::int32_t id = 0;
  std::int32_t split = 1;
  std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::int32_t piece = 0;       ///< 0: all in turn
  std::uint32_t alignment = 1;  ///< in bytes, that operands and their columns must have
};
static_assert(sizeof(BlasAlgorithm) <= sizeof(cublasLtMatmulAlgo_t));

/// A product with all that it works on.
struct BlasCall {
  BlasProduct product;
  BlasAlgorithm algorithm;
  float alpha = 1;
  float beta = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  BlasMatrix a_matrix;
  BlasMatrix b_matrix;
  BlasMatrix c_matrix;
  BlasMatrix d_matrix;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;  ///< that the algorithm uses
};

/// Computes it in f32; every access is checked.
void run_product(const BlasCall& call);

std::size_t element_bytes(cudaDataType_t type);

}  // namespace lockstep::emulated
