#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "emulated_device/access_checks.h"
#include "emulated_device/cublaslt_types.h"
#include "emulated_device/fault.h"
#include "emulated_device/settings.h"

namespace lockstep::emulated {
namespace {

using Values = std::vector<float>;

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return 0x7fff;
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

// To 10 bits behind the point, as TF32 has them; to nearest, ties away from zero.
float to_tf32(float value) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + 0x1000U) & 0xffffe000U);
}

float load(const std::byte* address, cudaDataType_t type) {
  if (type == CUDA_R_32F) {
    float value = 0;
    std::memcpy(&value, address, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, address, sizeof bits);
  return from_bfloat16(bits);
}

void store(std::byte* address, cudaDataType_t type, float value) {
  if (type == CUDA_R_32F) {
    std::memcpy(address, &value, sizeof value);
  } else {
    const std::uint16_t bits = to_bfloat16(value);
    std::memcpy(address, &bits, sizeof bits);
  }
}

// Runs over the pieces of a matrix that lie together in memory: f(address, first index, step of the index, count),
// where element (row, col) has the index row + col * rows.
template <typename Function>
void for_runs(const void* data, const BlasMatrix& matrix, std::int32_t batch, Function function) {
  const std::size_t size = element_bytes(matrix.type);
  const auto* const base = static_cast<const std::byte*>(data) +
                           static_cast<std::int64_t>(size) * batch * matrix.batch_stride;
  const bool by_columns = matrix.order == CUBLASLT_ORDER_COL;
  const std::uint64_t runs = by_columns ? matrix.cols : matrix.rows;
  const std::uint64_t length = by_columns ? matrix.rows : matrix.cols;
  for (std::uint64_t run = 0; run < runs; ++run) {
    const std::byte* const address =
        base + static_cast<std::int64_t>(size) * static_cast<std::int64_t>(run) * matrix.stride;
    function(address, by_columns ? run * matrix.rows : run, by_columns ? 1 : matrix.rows, length);
  }
}

Values read_matrix(const void* data, const BlasMatrix& matrix, std::int32_t batch) {
  Values values(matrix.rows * matrix.cols);
  const std::size_t size = element_bytes(matrix.type);
  for_runs(
      data,
      matrix,
      batch,
      [&](const std::byte* address, std::uint64_t first, std::uint64_t step, std::uint64_t count) {
        check_operation_access(address, count * size, Access::kRead);
        for (std::uint64_t i = 0; i < count; ++i) {
          values[first + i * step] = load(address + i * size, matrix.type);
        }
      });
  return values;
}

void write_matrix(void* data, const BlasMatrix& matrix, std::int32_t batch, const Values& values) {
  const std::size_t size = element_bytes(matrix.type);
  for_runs(
      data,
      matrix,
      batch,
      [&](const std::byte* address, std::uint64_t first, std::uint64_t step, std::uint64_t count) {
        check_operation_access(address, count * size, Access::kWrite);
        auto* const target = const_cast<std::byte*>(address);
        for (std::uint64_t i = 0; i < count; ++i) {
          store(target + i * size, matrix.type, values[first + i * step]);
        }
      });
}

Values read_vector(const void* data, cudaDataType_t type, std::uint64_t count) {
  const BlasMatrix vector{
      type, CUBLASLT_ORDER_COL, count, 1, static_cast<std::int64_t>(count), 1, 0};
  return read_matrix(data, vector, 0);
}

void write_vector(void* data, cudaDataType_t type, const Values& values) {
  const BlasMatrix vector{
      type, CUBLASLT_ORDER_COL, values.size(), 1, static_cast<std::int64_t>(values.size()), 1, 0};
  write_matrix(data, vector, 0, values);
}

Values transpose(const Values& values, std::uint64_t rows, std::uint64_t cols) {
  Values turned(values.size());
  for (std::uint64_t col = 0; col < cols; ++col) {
    for (std::uint64_t row = 0; row < rows; ++row) {
      turned[col + row * cols] = values[row + col * rows];
    }
  }
  return turned;
}

// a[m x k] and b[k x n], by columns, as they are multiplied.
struct Operands {
  Values a;
  Values b;
  std::uint64_t m = 0;
  std::uint64_t n = 0;
  std::uint64_t k = 0;
};

Operands read_operands(const BlasCall& call, std::int32_t batch) {
  Operands read;
  read.a = read_matrix(call.a, call.a_matrix, batch);
  read.b = read_matrix(call.b, call.b_matrix, batch);
  if (call.product.transpose_a != CUBLAS_OP_N) {
    read.a = transpose(read.a, call.a_matrix.rows, call.a_matrix.cols);
  }
  if (call.product.transpose_b != CUBLAS_OP_N) {
    read.b = transpose(read.b, call.b_matrix.rows, call.b_matrix.cols);
  }
  read.m = call.d_matrix.rows;
  read.n = call.d_matrix.cols;
  read.k = read.m == 0 ? 0 : read.a.size() / read.m;
  const auto compute = call.product.compute;
  if (compute == CUBLAS_COMPUTE_32F_FAST_TF32 && call.a_matrix.type == CUDA_R_32F) {
    for (Values* values : {&read.a, &read.b}) {
      for (float& value : *values) {
        value = to_tf32(value);
      }
    }
  }
  return read;
}

// sums += the terms from `begin` to `end`, in turn.
void add_terms(const Operands& operands, std::uint64_t begin, std::uint64_t end, Values& sums) {
  const std::uint64_t m = operands.m;
  for (std::uint64_t col = 0; col < operands.n; ++col) {
    float* const sum = sums.data() + col * m;
    for (std::uint64_t inner = begin; inner < end; ++inner) {
      const float factor = operands.b[inner + col * operands.k];
      const float* const a = operands.a.data() + inner * m;
      for (std::uint64_t row = 0; row < m; ++row) {
        sum[row] += a[row] * factor;
      }
    }
  }
}

void add(const Values& part, Values& sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] += part[i];
  }
}

// Terms from `begin` to `end` as the algorithm takes them.
Values sum_part(const Operands& operands,
                std::uint64_t begin,
                std::uint64_t end,
                std::int32_t piece) {
  Values sums(operands.m * operands.n);
  if (piece == 0) {
    add_terms(operands, begin, end, sums);
    return sums;
  }
  const auto step = static_cast<std::uint64_t>(piece);
  for (std::uint64_t first = begin; first < end; first += step) {
    Values part(sums.size());
    add_terms(operands, first, std::min(end, first + step), part);
    add(part, sums);
  }
  return sums;
}

Values multiply(const Operands& operands, const BlasAlgorithm& algorithm) {
  const auto split = static_cast<std::uint64_t>(algorithm.split);
  std::vector<std::uint64_t> order(split);
  std::iota(order.begin(), order.end(), 0U);
  if (algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE) {  // by atomics: in any order
    for (std::uint64_t i = split; i > 1; --i) {
      std::swap(order[i - 1], order[random_below(static_cast<std::uint32_t>(i))]);
    }
  }
  Values sums(operands.m * operands.n);
  for (const std::uint64_t part : order) {
    const std::uint64_t begin = operands.k * part / split;
    const std::uint64_t end = operands.k * (part + 1) / split;
    add(sum_part(operands, begin, end, algorithm.piece), sums);
  }
  return sums;
}

// The approximation with tanh, which cuBLASLt documents.
float gelu(float x) {
  return 0.5F * x * (1.0F + std::tanh(0.79788456F * (x + 0.044715F * x * x * x)));
}

float gelu_slope(float x) {
  const float t = std::tanh(0.79788456F * (x + 0.044715F * x * x * x));
  return 0.5F * (1.0F + t) +
         0.5F * x * (1.0F - t * t) * 0.79788456F * (1.0F + 3.0F * 0.044715F * x * x);
}

constexpr std::uint32_t kRelu = CUBLASLT_EPILOGUE_RELU;
constexpr std::uint32_t kBias = CUBLASLT_EPILOGUE_BIAS;
constexpr std::uint32_t kBiasGradient = 16;
constexpr std::uint32_t kGelu = CUBLASLT_EPILOGUE_GELU;
constexpr std::uint32_t kGeluSlope = 64;
constexpr std::uint32_t kAux = 128;

cudaDataType_t type_or(std::int32_t type, cudaDataType_t otherwise) {
  return type < 0 ? otherwise : static_cast<cudaDataType_t>(type);
}

BlasMatrix aux_matrix(const BlasCall& call) {
  BlasMatrix matrix = call.d_matrix;
  matrix.type = type_or(call.product.aux_type, call.d_matrix.type);
  matrix.stride = call.product.aux_stride;
  return matrix;
}

void add_bias(const BlasCall& call, Values& values) {
  const Values bias = read_vector(
      call.product.bias, type_or(call.product.bias_type, call.d_matrix.type), call.d_matrix.rows);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += bias[i % bias.size()];
  }
}

// out[i] = sum over `count` values, `step` apart.
Values sum_along(const Values& values,
                 std::uint64_t outputs,
                 std::uint64_t output_step,
                 std::uint64_t count,
                 std::uint64_t step) {
  Values sums(outputs);
  for (std::uint64_t i = 0; i < outputs; ++i) {
    for (std::uint64_t j = 0; j < count; ++j) {
      sums[i] += values[i * output_step + j * step];
    }
  }
  return sums;
}

void apply_epilogue(const BlasCall& call,
                    const Operands& operands,
                    std::int32_t batch,
                    Values& values) {
  const std::uint32_t epilogue = call.product.epilogue;
  const cudaDataType_t bias_type = type_or(call.product.bias_type, call.d_matrix.type);
  const std::uint64_t m = operands.m;
  const std::uint64_t n = operands.n;
  if (epilogue == CUBLASLT_EPILOGUE_BGRADA) {
    write_vector(call.product.bias, bias_type, sum_along(operands.a, m, 1, operands.k, m));
    return;
  }
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB) {
    write_vector(call.product.bias, bias_type, sum_along(operands.b, n, operands.k, operands.k, 1));
    return;
  }
  if ((epilogue & kBias) != 0) {
    add_bias(call, values);
  }
  if ((epilogue & kGeluSlope) != 0) {
    const Values before = read_matrix(call.product.aux, aux_matrix(call), batch);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] *= gelu_slope(before[i]);
    }
  } else if ((epilogue & kAux) != 0) {
    write_matrix(call.product.aux, aux_matrix(call), batch, values);
  }
  for (float& value : values) {
    if ((epilogue & kGelu) != 0) {
      value = gelu(value);
    } else if ((epilogue & kRelu) != 0) {
      value = std::max(value, 0.0F);
    }
  }
  if ((epilogue & kBiasGradient) != 0) {
    write_vector(call.product.bias, bias_type, sum_along(values, m, 1, n, m));
  }
}

float read_scale(const void* scale) {
  return scale == nullptr ? 1.0F : read_vector(scale, CUDA_R_32F, 1)[0];
}

}  // namespace

std::size_t element_bytes(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

void run_product(const BlasCall& call) {
  if (call.workspace_bytes > 0) {
    check_operation_access(call.workspace, call.workspace_bytes, Access::kWrite);
    std::memset(call.workspace, 0xff, call.workspace_bytes);
  }
  const float alpha =
      call.alpha * read_scale(call.product.a_scale) * read_scale(call.product.b_scale);
  const float beta = call.beta * read_scale(call.product.c_scale);
  const float out_scale = read_scale(call.product.d_scale);
  for (std::int32_t batch = 0; batch < call.d_matrix.batches; ++batch) {
    const Operands operands = read_operands(call, batch);
    Values values = multiply(operands, call.algorithm);
    const Values before = beta == 0 ? Values() : read_matrix(call.c, call.c_matrix, batch);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = alpha * values[i] + (before.empty() ? 0.0F : beta * before[i]);
    }
    apply_epilogue(call, operands, batch, values);
    for (float& value : values) {
      value *= out_scale;
    }
    write_matrix(call.d, call.d_matrix, batch, values);
  }
}

}  // namespace lockstep::emulated
