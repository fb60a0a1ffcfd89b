// cuBLASLt's functions: descriptors, the choice of an algorithm, and products put into streams.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <cublasLt.h>

#include "emulated_device/cublaslt_types.h"
#include "emulated_device/fault.h"
#include "emulated_device/memory.h"
#include "emulated_device/streams.h"

namespace lockstep::emulated {
namespace {

BlasMatrix& matrix_of(cublasLtMatrixLayoutOpaque_t* layout) {
  return *reinterpret_cast<BlasMatrix*>(layout);
}

BlasProduct& product_of(cublasLtMatmulDescOpaque_t* product) {
  return *reinterpret_cast<BlasProduct*>(product);
}

BlasPreference& preference_of(cublasLtMatmulPreferenceOpaque_t* preference) {
  return *reinterpret_cast<BlasPreference*>(preference);
}

BlasAlgorithm algorithm_of(const cublasLtMatmulAlgo_t& algorithm) {
  BlasAlgorithm read;
  std::memcpy(static_cast<void*>(&read), &algorithm, sizeof read);
  return read;
}

cublasLtMatmulAlgo_t to_algo(const BlasAlgorithm& algorithm) {
  cublasLtMatmulAlgo_t written{};
  std::memcpy(static_cast<void*>(&written), &algorithm, sizeof algorithm);
  return written;
}

// A member that an attribute stands for.
struct Field {
  void* data = nullptr;
  std::size_t bytes = 0;
};

template <typename T>
Field field(T& member) {
  return {&member, sizeof member};
}

Field field_of(BlasMatrix& matrix, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return field(matrix.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return field(matrix.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return field(matrix.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return field(matrix.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return field(matrix.stride);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return field(matrix.batches);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return field(matrix.batch_stride);
    default:
      return {};
  }
}

Field field_of(BlasProduct& product, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return field(product.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return field(product.scale);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return field(product.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return field(product.transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return field(product.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return field(product.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return field(product.bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return field(product.aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return field(product.aux_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return field(product.aux_type);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return field(product.fast_accumulation);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return field(product.a_scale);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return field(product.b_scale);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
      return field(product.c_scale);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
      return field(product.d_scale);
    default:
      return {};
  }
}

Field field_of(BlasPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return field(preference.workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return field(preference.reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return field(preference.a_alignment);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return field(preference.b_alignment);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return field(preference.c_alignment);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return field(preference.d_alignment);
    default:
      return {};
  }
}

cublasStatus_t write_field(const Field& target,
                           int attribute,
                           const void* value,
                           std::size_t bytes) {
  if (target.data == nullptr) {
    fault("cuBLASLt: attribute {} is not emulated", attribute);
  }
  if (bytes != target.bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(target.data, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t read_field(
    const Field& source, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  if (source.data == nullptr) {
    fault("cuBLASLt: attribute {} is not emulated", attribute);
  }
  if (written != nullptr) {
    *written = source.bytes;
  }
  if (bytes < source.bytes) {
    return bytes == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(value, source.data, source.bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename State, typename Opaque>
void start(Opaque* opaque, const State& state) {
  std::memset(opaque, 0, sizeof *opaque);
  std::memcpy(opaque, &state, sizeof state);
}

constexpr std::array<BlasAlgorithm, 4> kAlgorithms = {
    BlasAlgorithm{11, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0, 1},
    BlasAlgorithm{12, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 32, 16},
    BlasAlgorithm{13, 3, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0, 4},
    BlasAlgorithm{14, 4, CUBLASLT_REDUCTION_SCHEME_INPLACE, 0, 16},
};

bool is_known_type(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF;
}

bool is_aligned(const BlasMatrix& matrix, std::uint32_t alignment) {
  return matrix.stride * static_cast<std::int64_t>(element_bytes(matrix.type)) % alignment == 0;
}

std::size_t workspace_of(const BlasAlgorithm& algorithm, const BlasMatrix& d) {
  const bool needs = algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  return needs ? static_cast<std::size_t>(algorithm.split) * d.rows * d.cols * sizeof(float) : 0;
}

// Whether the shapes and types belong together.
cublasStatus_t check_matrices(const BlasProduct& product,
                              const BlasMatrix& a,
                              const BlasMatrix& b,
                              const BlasMatrix& c,
                              const BlasMatrix& d) {
  for (const BlasMatrix* matrix : {&a, &b, &c, &d}) {
    const std::uint64_t run = matrix->order == CUBLASLT_ORDER_COL ? matrix->rows : matrix->cols;
    if (matrix->stride < static_cast<std::int64_t>(run) || matrix->batches != d.batches) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!is_known_type(matrix->type) ||
        (matrix->order != CUBLASLT_ORDER_COL && matrix->order != CUBLASLT_ORDER_ROW)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  }
  const bool turn_a = product.transpose_a != CUBLAS_OP_N;
  const bool turn_b = product.transpose_b != CUBLAS_OP_N;
  const std::uint64_t inner = turn_a ? a.rows : a.cols;
  const bool fits = (turn_a ? a.cols : a.rows) == d.rows && (turn_b ? b.rows : b.cols) == d.cols &&
                    (turn_b ? b.cols : b.rows) == inner && c.rows == d.rows && c.cols == d.cols;
  if (!fits) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool is_supported = a.type == b.type && c.type == d.type &&
                            (d.type == a.type || d.type == CUDA_R_32F) &&
                            product.scale == CUDA_R_32F;
  return is_supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool suits(const BlasAlgorithm& algorithm, std::initializer_list<const BlasMatrix*> matrices) {
  return std::all_of(matrices.begin(), matrices.end(), [&](const BlasMatrix* matrix) {
    return is_aligned(*matrix, algorithm.alignment);
  });
}

std::vector<cublasLtMatmulHeuristicResult_t> find_algorithms(const BlasMatrix& a,
                                                             const BlasMatrix& b,
                                                             const BlasMatrix& c,
                                                             const BlasMatrix& d,
                                                             const BlasPreference& preference) {
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  const std::uint32_t alignment = std::min({preference.a_alignment,
                                            preference.b_alignment,
                                            preference.c_alignment,
                                            preference.d_alignment});
  // Which comes first depends on the shape, as it does with NVIDIA's.
  const std::size_t first = (a.rows * 7 + a.cols * 3 + d.cols) % kAlgorithms.size();
  for (std::size_t i = 0; i < kAlgorithms.size(); ++i) {
    const BlasAlgorithm& algorithm = kAlgorithms.at((first + i) % kAlgorithms.size());
    const bool is_allowed = (algorithm.reduction & ~preference.reductions) == 0 &&
                            algorithm.alignment <= alignment &&
                            workspace_of(algorithm, d) <= preference.workspace_bytes &&
                            suits(algorithm, {&a, &b, &c, &d});
    if (is_allowed) {
      cublasLtMatmulHeuristicResult_t result{};
      result.algo = to_algo(algorithm);
      result.workspaceSize = workspace_of(algorithm, d);
      result.state = CUBLAS_STATUS_SUCCESS;
      result.wavesCount = 1.0F;
      found.push_back(result);
    }
  }
  return found;
}

class ProductOperation final : public Operation {
 public:
  explicit ProductOperation(const BlasCall& call) : Operation("cublasLtMatmul"), call_(call) {}
  bool advance() override {
    run_product(call_);
    return true;
  }

 private:
  BlasCall call_;
};

bool are_addresses_aligned(const BlasCall& call) {
  const std::array<const void*, 4> addresses = {call.a, call.b, call.c, call.d};
  return std::all_of(addresses.begin(), addresses.end(), [&](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % call.algorithm.alignment == 0;
  });
}

}  // namespace
}  // namespace lockstep::emulated

using namespace lockstep::emulated;  // NOLINT(google-build-using-namespace): C functions follow

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (num_devices() == 0) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

std::size_t cublasLtGetCudartVersion() {
  return CUDART_VERSION;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return cublasLtGetStatusString(status);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS (other)";
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout,
                                                 std::size_t,
                                                 cudaDataType type,
                                                 std::uint64_t rows,
                                                 std::uint64_t cols,
                                                 std::int64_t stride) {
  start(layout, BlasMatrix{type, CUBLASLT_ORDER_COL, rows, cols, stride, 1, 0});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type,
                                          std::uint64_t rows,
                                          std::uint64_t cols,
                                          std::int64_t stride) {
  *layout = new cublasLtMatrixLayoutOpaque_t;
  return cublasLtMatrixLayoutInit_internal(*layout, sizeof **layout, type, rows, cols, stride);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value,
                                                std::size_t bytes) {
  return write_field(field_of(matrix_of(layout), attribute), attribute, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                void* value,
                                                std::size_t bytes,
                                                std::size_t* written) {
  return read_field(field_of(matrix_of(layout), attribute), attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t product,
                                               std::size_t,
                                               cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  BlasProduct state;
  state.compute = compute;
  state.scale = scale;
  start(product, state);
  const bool is_known = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                        compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  return is_known ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *product = new cublasLtMatmulDescOpaque_t;
  return cublasLtMatmulDescInit_internal(*product, sizeof **product, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value,
                                              std::size_t bytes) {
  return write_field(field_of(product_of(product), attribute), attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              void* value,
                                              std::size_t bytes,
                                              std::size_t* written) {
  return read_field(field_of(product_of(product), attribute), attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference,
                                                     std::size_t) {
  start(preference, BlasPreference{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return cublasLtMatmulPreferenceInit_internal(*preference, sizeof **preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value,
                                                    std::size_t bytes) {
  return write_field(field_of(preference_of(preference), attribute), attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    void* value,
                                                    std::size_t bytes,
                                                    std::size_t* written) {
  return read_field(
      field_of(preference_of(preference), attribute), attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t,
                                              cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference,
                                              int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = 0;
  const cublasStatus_t status =
      check_matrices(product_of(product), matrix_of(a), matrix_of(b), matrix_of(c), matrix_of(d));
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const auto found = find_algorithms(
      matrix_of(a), matrix_of(b), matrix_of(c), matrix_of(d), preference_of(preference));
  *count = std::min(requested, static_cast<int>(found.size()));
  std::copy_n(found.begin(), *count, results);
  return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t,
                                        cublasComputeType_t,
                                        cudaDataType_t,
                                        cudaDataType_t,
                                        cudaDataType_t,
                                        cudaDataType_t,
                                        cudaDataType_t,
                                        int requested,
                                        int ids[],
                                        int* count) {
  *count = std::min(requested, static_cast<int>(kAlgorithms.size()));
  for (int i = 0; i < *count; ++i) {
    ids[i] = kAlgorithms.at(static_cast<std::size_t>(i)).id;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t,
                                      cublasComputeType_t,
                                      cudaDataType_t,
                                      cudaDataType_t,
                                      cudaDataType_t,
                                      cudaDataType_t,
                                      cudaDataType_t,
                                      int id,
                                      cublasLtMatmulAlgo_t* result) {
  for (const BlasAlgorithm& algorithm : kAlgorithms) {
    if (algorithm.id == id) {
      *result = to_algo(algorithm);
      return CUBLAS_STATUS_SUCCESS;
    }
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t,
                                       cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const BlasAlgorithm algorithm = algorithm_of(*algo);
  cublasStatus_t status =
      check_matrices(product_of(product), matrix_of(a), matrix_of(b), matrix_of(c), matrix_of(d));
  if (status == CUBLAS_STATUS_SUCCESS &&
      !suits(algorithm, {&matrix_of(a), &matrix_of(b), &matrix_of(c), &matrix_of(d)})) {
    status = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *result = {};
  result->algo = *algo;
  result->workspaceSize = workspace_of(algorithm, matrix_of(d));
  result->state = status;
  result->wavesCount = 1.0F;
  return status;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value,
                                                    std::size_t bytes,
                                                    std::size_t* written) {
  BlasAlgorithm algorithm = algorithm_of(*algo);
  std::uint32_t nothing = 0;
  std::uint16_t short_nothing = 0;
  Field source = field(nothing);
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) {
    source = field(algorithm.id);
  } else if (attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) {
    source = field(algorithm.split);
  } else if (attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) {
    source = field(algorithm.reduction);
  } else if (attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
             attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID) {
    source = field(short_nothing);
  }
  return read_field(source, attribute, value, bytes, written);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t,
                              cublasLtMatmulDesc_t product,
                              const void* alpha,
                              const void* a,
                              cublasLtMatrixLayout_t a_layout,
                              const void* b,
                              cublasLtMatrixLayout_t b_layout,
                              const void* beta,
                              const void* c,
                              cublasLtMatrixLayout_t c_layout,
                              void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo,
                              void* workspace,
                              std::size_t workspace_bytes,
                              cudaStream_t stream) {
  const ApiLock lock;
  BlasCall call{product_of(product),
                kAlgorithms[0],
                1,
                0,
                a,
                b,
                c,
                d,
                matrix_of(a_layout),
                matrix_of(b_layout),
                matrix_of(c_layout),
                matrix_of(d_layout),
                workspace,
                0};
  const cublasStatus_t status =
      check_matrices(call.product, call.a_matrix, call.b_matrix, call.c_matrix, call.d_matrix);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (algo != nullptr) {
    call.algorithm = algorithm_of(*algo);
  }
  std::memcpy(&call.alpha, alpha, sizeof call.alpha);
  std::memcpy(&call.beta, beta, sizeof call.beta);
  call.workspace_bytes = workspace_of(call.algorithm, call.d_matrix);
  const bool fits =
      suits(call.algorithm, {&call.a_matrix, &call.b_matrix, &call.c_matrix, &call.d_matrix}) &&
      are_addresses_aligned(call);
  if (!fits) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (call.workspace_bytes > workspace_bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cudaError_t submitted =
      submit(stream, [call] { return std::make_unique<ProductOperation>(call); });
  return submitted == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
