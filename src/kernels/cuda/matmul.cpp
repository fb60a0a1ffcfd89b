#include "kernels/cuda/matmul.h"

#include <array>
#include <cstdint>
#include <map>
#include <tuple>

#include <cublasLt.h>

#include "base/error.h"
#include "base/integers.h"
#include "device/cuda/cuda_check.h"
#include "kernels/cuda/backend.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace {

void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw_error("cuBLASLt: {} failed: {}", what, cublasLtGetStatusString(status));
  }
}

cudaDataType_t data_type(DType dtype) {
  LOCKSTEP_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

/// All that a choice of algorithm may depend on.
struct Shape {
  long m = 0;
  long n = 0;
  long k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  DType operands = DType::kF32;
  DType result = DType::kF32;
  bool accumulate = false;

  explicit Shape(const MatMul& op)
      : m(op.m()),
        n(op.n()),
        k(op.k()),
        transpose_a(op.transpose_a),
        transpose_b(op.transpose_b),
        operands(op.a.dtype),
        result(op.c.dtype),
        accumulate(op.accumulate) {}
  auto operator<=>(const Shape&) const =
      default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
};

/// Elements from row to row of a, b and c.
using Strides = std::array<long, 3>;

long stride_of(const Matrix& matrix) {
  return matrix.rows > 1 ? matrix.stride : matrix.cols;
}

/// A row-major matrix as cuBLASLt sees it: transposed, by columns.
class Layout {
 public:
  Layout(const Matrix& matrix, long stride) {
    check_cublas(cublasLtMatrixLayoutCreate(&layout_,
                                            data_type(matrix.dtype),
                                            static_cast<std::uint64_t>(matrix.cols),
                                            static_cast<std::uint64_t>(matrix.rows),
                                            stride),
                 "describing a matrix");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  [[nodiscard]] cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

struct Layouts {
  Layout a;
  Layout b;
  Layout c;

  Layouts(const MatMul& op, const Strides& strides)
      : a(op.a, strides[0]), b(op.b, strides[1]), c(op.c, strides[2]) {}
};

/// f32 sums. cuBLASLt computes c' = b' a', as it sees every matrix transposed.
class Product {
 public:
  explicit Product(const MatMul& op) {
    check_cublas(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "describing a product");
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, op.transpose_b);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, op.transpose_a);
  }
  ~Product() { cublasLtMatmulDescDestroy(product_); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  [[nodiscard]] cublasLtMatmulDesc_t get() const { return product_; }

 private:
  void transpose(cublasLtMatmulDescAttributes_t operand, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_cublas(cublasLtMatmulDescSetAttribute(product_, operand, &operation, sizeof(operation)),
                 "describing a product");
  }

  cublasLtMatmulDesc_t product_ = nullptr;
};

class Preference {
 public:
  Preference() {
    check_cublas(cublasLtMatmulPreferenceCreate(&preference_), "describing preferences");
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  [[nodiscard]] cublasLtMatmulPreference_t get() const { return preference_; }
  template <typename T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
        "describing preferences");
  }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

template <typename T>
T config_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  check_cublas(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written),
      "asking for an algorithm's configuration");
  return value;
}

std::string describe(const cublasLtMatmulAlgo_t& algorithm) {
  return fmt::format(
      "algorithm {} tile {} stages {} split {} reduction {} swizzle {} custom {} "
      "inner {} cluster {}",
      config_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID),
      config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID),
      config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID),
      config_of<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
      config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
      config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
      config_of<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
      config_of<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
      config_of<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

std::string describe(const Shape& shape) {
  return fmt::format("{}x{}x{} {}{} {} to {}{}",
                     shape.m,
                     shape.n,
                     shape.k,
                     shape.transpose_a ? 'T' : 'N',
                     shape.transpose_b ? 'T' : 'N',
                     name_of(shape.operands),
                     name_of(shape.result),
                     shape.accumulate ? " accumulating" : "");
}

/// Partial sums of a split inner dimension may meet in f32 in the workspace, in order; not in the result by
/// atomics, nor rounded.
constexpr std::uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

/// Elements that rows are apart in the second layout that an algorithm has to suit.
constexpr long kPadding = 64;

/// Candidates that are looked at.
constexpr int kCandidates = 16;

/// The handle, and what was found out about products so far. Nothing is allocated for one that is known.
class Cublas {
 public:
  Cublas() { check_cublas(cublasLtCreate(&handle_), "starting"); }
  ~Cublas() { cublasLtDestroy(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// c = or += op(a) op(b) with operands as aligned as dense ones.
  void multiply(cudaStream_t stream, const MatMul& op, std::byte* workspace) {
    const Plan& plan = plan_of(op);
    const float one = 1.0F;
    const float beta = op.accumulate ? 1.0F : 0.0F;
    check_cublas(cublasLtMatmul(handle_,
                                plan.product.get(),
                                &one,
                                op.b.data,
                                plan.layouts.b.get(),
                                op.a.data,
                                plan.layouts.a.get(),
                                &beta,
                                op.c.data,
                                plan.layouts.c.get(),
                                op.c.data,
                                plan.layouts.c.get(),
                                &plan.algorithm,
                                workspace,
                                kCublasWorkspaceBytes,
                                stream),
                 "a product");
  }

  [[nodiscard]] std::string choices() const {
    std::string text = fmt::format("cuBLASLt {}", cublasLtGetVersion());
    for (const auto& [shape, algorithm] : choices_) {
      text += fmt::format("\n{}: {}", describe(shape), describe(algorithm));
    }
    return text;
  }

 private:
  struct Plan {
    Product product;
    Layouts layouts;
    cublasLtMatmulAlgo_t algorithm{};

    Plan(const MatMul& op, const Strides& strides) : product(op), layouts(op, strides) {}
  };

  const Plan& plan_of(const MatMul& op);
  cublasLtMatmulAlgo_t choose(const MatMul& op);
  [[nodiscard]] bool suits(const cublasLtMatmulAlgo_t& algorithm,
                           const Product& product,
                           const Layouts& layouts) const;

  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, cublasLtMatmulAlgo_t> choices_;
  std::map<std::pair<Shape, Strides>, Plan> plans_;
};

bool Cublas::suits(const cublasLtMatmulAlgo_t& algorithm,
                   const Product& product,
                   const Layouts& layouts) const {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_,
                                                        product.get(),
                                                        layouts.b.get(),
                                                        layouts.a.get(),
                                                        layouts.c.get(),
                                                        layouts.c.get(),
                                                        &algorithm,
                                                        &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kCublasWorkspaceBytes;
}

// Dense and padded matrices must do with the same algorithm, or strides would decide bits.
cublasLtMatmulAlgo_t Cublas::choose(const MatMul& op) {
  const Product product(op);
  const Layouts dense(op, {op.a.cols, op.b.cols, op.c.cols});
  const Layouts padded(op, {op.a.cols + kPadding, op.b.cols + kPadding, op.c.cols + kPadding});
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kCublasWorkspaceBytes});
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  const auto alignment = [](const Matrix& matrix) {
    return static_cast<std::uint32_t>(dense_alignment(matrix));
  };
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(op.b));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(op.a));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(op.c));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(op.c));

  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
  int count = 0;
  check_cublas(cublasLtMatmulAlgoGetHeuristic(handle_,
                                              product.get(),
                                              dense.b.get(),
                                              dense.a.get(),
                                              dense.c.get(),
                                              dense.c.get(),
                                              preference.get(),
                                              kCandidates,
                                              candidates.data(),
                                              &count),
               "looking for an algorithm");
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& candidate = candidates.at(static_cast<std::size_t>(i));
    if (candidate.state != CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    const auto reduction =
        config_of<std::uint32_t>(candidate.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    const bool ordered = (reduction & ~kReductions) == 0;
    if (ordered && suits(candidate.algo, product, dense) &&
        suits(candidate.algo, product, padded)) {
      return candidate.algo;
    }
  }
  throw_error("cuBLASLt has no algorithm with a fixed order of sums for a product of {}",
              describe(Shape(op)));
}

const Cublas::Plan& Cublas::plan_of(const MatMul& op) {
  const Shape shape(op);
  const Strides strides = {stride_of(op.a), stride_of(op.b), stride_of(op.c)};
  const auto known = plans_.find({shape, strides});
  if (known != plans_.end()) {
    return known->second;
  }
  auto choice = choices_.find(shape);
  if (choice == choices_.end()) {
    choice = choices_.emplace(shape, choose(op)).first;
  }
  const auto added = plans_.emplace(std::piecewise_construct,
                                    std::forward_as_tuple(shape, strides),
                                    std::forward_as_tuple(op, strides));
  Plan& plan = added.first->second;
  plan.algorithm = choice->second;
  if (!suits(plan.algorithm, plan.product, plan.layouts)) {
    throw_error(
        "cuBLASLt cannot compute a product of {} with rows {}, {} and {} elements apart "
        "with the algorithm that it uses without gaps, which would change bits",
        describe(shape),
        strides[0],
        strides[1],
        strides[2]);
  }
  return plan;
}

void copy_rows(cudaStream_t stream, const Matrix& to, const Matrix& from) {
  const std::size_t size = size_of(to.dtype);
  const auto bytes = [size](long elements) { return static_cast<std::size_t>(elements) * size; };
  check_cuda(cudaMemcpy2DAsync(to.data,
                               bytes(stride_of(to)),
                               from.data,
                               bytes(stride_of(from)),
                               bytes(to.cols),
                               static_cast<std::size_t>(to.rows),
                               cudaMemcpyDeviceToDevice,
                               stream),
             "copying a matrix");
}

/// Hands out dense places in the workspace, in the order of MatMul::cuda_workspace_bytes.
class DensePlaces {
 public:
  explicit DensePlaces(std::byte* next) : next_(next) {}
  /// The matrix itself if it is aligned well enough, else a place of its size.
  Matrix place_for(const Matrix& matrix) {
    if (is_aligned_as_dense(matrix)) {
      return matrix;
    }
    const Matrix place(next_, matrix.dtype, matrix.rows, matrix.cols);
    next_ += round_up(matrix.bytes(), kDenseCopyAlignment);
    return place;
  }

 private:
  std::byte* next_;
};

}  // namespace

void run_on_cuda(CudaQueue& queue, const MatMul& op) {
  if (op.m() == 0 || op.n() == 0) {
    return;
  }
  LOCKSTEP_CHECK(op.k() > 0);
  std::byte* const workspace = queue.workspace(op.cuda_workspace_bytes());
  DensePlaces places(workspace + kCublasWorkspaceBytes);
  MatMul dense = op;
  dense.a = places.place_for(op.a);
  dense.b = places.place_for(op.b);
  dense.c = places.place_for(op.c);
  const bool result_is_copied = dense.c.data != op.c.data;
  if (dense.a.data != op.a.data) {
    copy_rows(queue.stream(), dense.a, op.a);
  }
  if (dense.b.data != op.b.data) {
    copy_rows(queue.stream(), dense.b, op.b);
  }
  if (result_is_copied && op.accumulate) {
    copy_rows(queue.stream(), dense.c, op.c);
  }
  queue.state<Cublas>().multiply(queue.stream(), dense, workspace);
  if (result_is_copied) {
    copy_rows(queue.stream(), op.c, dense.c);
  }
}

std::string matmul_choices(const CudaQueue& queue) {
  const Cublas* const cublas = queue.find_state<Cublas>();
  return cublas == nullptr ? "" : cublas->choices();
}

}  // namespace lockstep
