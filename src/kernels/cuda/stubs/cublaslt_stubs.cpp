// The functions of cuBLASLt that this program calls, loaded at the first call (device/cuda/late_library.h).
#include <cublasLt.h>
#include <cublas_api.h>

#include "device/cuda/late_library.h"

#define TEXT_OF(value) #value
#define LIBRARY_OF(major) "libcublasLt.so." TEXT_OF(major)
#define CUBLASLT_FUNCTION(result, name, parameters, arguments) \
  LOCKSTEP_LATE_FUNCTION(LIBRARY_OF(CUBLAS_VER_MAJOR), result, name, parameters, arguments)

// Names and numbers of parameters are NVIDIA's.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name,readability-function-size)
CUBLASLT_FUNCTION(size_t, cublasLtGetVersion, (), ())
CUBLASLT_FUNCTION(const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
CUBLASLT_FUNCTION(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
CUBLASLT_FUNCTION(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulDescCreate,
                  (cublasLtMatmulDesc_t * desc, cublasComputeType_t compute, cudaDataType_t scale),
                  (desc, compute, scale))
CUBLASLT_FUNCTION(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc), (desc))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulDescSetAttribute,
                  (cublasLtMatmulDesc_t desc,
                   cublasLtMatmulDescAttributes_t attribute,
                   const void* value,
                   size_t bytes),
                  (desc, attribute, value, bytes))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatrixLayoutCreate,
                  (cublasLtMatrixLayout_t * layout,
                   cudaDataType type,
                   uint64_t rows,
                   uint64_t cols,
                   int64_t stride),
                  (layout, type, rows, cols, stride))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatrixLayoutDestroy,
                  (cublasLtMatrixLayout_t layout),
                  (layout))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulPreferenceCreate,
                  (cublasLtMatmulPreference_t * preference),
                  (preference))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulPreferenceDestroy,
                  (cublasLtMatmulPreference_t preference),
                  (preference))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulPreferenceSetAttribute,
                  (cublasLtMatmulPreference_t preference,
                   cublasLtMatmulPreferenceAttributes_t attribute,
                   const void* value,
                   size_t bytes),
                  (preference, attribute, value, bytes))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulAlgoGetHeuristic,
                  (cublasLtHandle_t handle,
                   cublasLtMatmulDesc_t desc,
                   cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c,
                   cublasLtMatrixLayout_t d,
                   cublasLtMatmulPreference_t preference,
                   int wanted,
                   cublasLtMatmulHeuristicResult_t* results,
                   int* found),
                  (handle, desc, a, b, c, d, preference, wanted, results, found))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulAlgoCheck,
                  (cublasLtHandle_t handle,
                   cublasLtMatmulDesc_t desc,
                   cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t b,
                   cublasLtMatrixLayout_t c,
                   cublasLtMatrixLayout_t d,
                   const cublasLtMatmulAlgo_t* algorithm,
                   cublasLtMatmulHeuristicResult_t* result),
                  (handle, desc, a, b, c, d, algorithm, result))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmulAlgoConfigGetAttribute,
                  (const cublasLtMatmulAlgo_t* algorithm,
                   cublasLtMatmulAlgoConfigAttributes_t attribute,
                   void* value,
                   size_t bytes,
                   size_t* written),
                  (algorithm, attribute, value, bytes, written))
CUBLASLT_FUNCTION(cublasStatus_t,
                  cublasLtMatmul,
                  (cublasLtHandle_t handle,
                   cublasLtMatmulDesc_t desc,
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
                   const cublasLtMatmulAlgo_t* algorithm,
                   void* workspace,
                   size_t workspace_bytes,
                   cudaStream_t stream),
                  (handle,
                   desc,
                   alpha,
                   a,
                   a_layout,
                   b,
                   b_layout,
                   beta,
                   c,
                   c_layout,
                   d,
                   d_layout,
                   algorithm,
                   workspace,
                   workspace_bytes,
                   stream))
// NOLINTEND(readability-inconsistent-declaration-parameter-name,readability-function-size)
