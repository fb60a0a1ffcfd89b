#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <array>

#include "base/integers.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/native_bf16.h"
#include "kernels/matmul.h"

namespace lockstep {
namespace {

// A task packs its own strips of the longer side of c (this many floats wide, on its stack) and
// multiplies them by strips of the shorter side, which were packed once for all tasks.
constexpr long kTaskWidth = 128;
// Elements of the shorter side that a task covers at most; with bf16 results it sums them in f32
// on its stack.
constexpr long kTaskLength = 512;
// Products with few columns use rows of an f32 operand a only as often as packing them costs.
constexpr long kFewColumns = 256;
// Products of fewer multiplications take less time than waking other threads.
constexpr long kSmallProduct = 1L << 18U;

GemmOperand outer_rows(const Matrix& a, bool transposed) {
  return {a.data, a.dtype, transposed ? 1 : a.stride, transposed ? a.stride : 1};
}

GemmOperand outer_columns(const Matrix& b, bool transposed) {
  return {b.data, b.dtype, transposed ? b.stride : 1, transposed ? 1 : b.stride};
}

// How a product is cut. Only `width` depends on the number of threads; no cut decides bits.
struct Plan {
  GemmStrips strips;
  bool rows_are_longer = false;
  bool a_is_read_in_place = false;
  long inner_blocks = 1;
  long inner_block = 0;
  long shared_width = 0;  ///< floats of the packed shorter side for one inner index
  long width = 0;         ///< outer indices of the longer side that a task takes

  [[nodiscard]] StripShape shared() const { return rows_are_longer ? strips.b : strips.a; }
  [[nodiscard]] StripShape own() const { return rows_are_longer ? strips.a : strips.b; }
};

Plan plan_of(const MatMul& op, long threads) {
  Plan plan;
  plan.strips = gemm_strips();
  const long row_strips = std::max(1L, ceil_div(op.m(), plan.strips.a.outer));
  plan.strips.a.outer = std::max(1L, ceil_div(op.m(), row_strips));
  plan.rows_are_longer = op.m() > op.n();
  plan.a_is_read_in_place =
      plan.rows_are_longer && op.a.dtype == DType::kF32 && op.n() <= kFewColumns;
  plan.inner_blocks = std::max(1L, ceil_div(op.k(), kInnerBlock));
  plan.inner_block = ceil_div(op.k(), plan.inner_blocks);
  const long longer = std::max(op.m(), op.n());
  const long shorter = std::min(op.m(), op.n());
  plan.shared_width = ceil_div(shorter, plan.shared().outer) * plan.shared().width;
  long strips = kTaskWidth / plan.own().width;
  while (threads > 1 && strips > 1 &&
         ceil_div(longer, strips * plan.own().outer) * ceil_div(shorter, kTaskLength) <
             4 * threads) {
    strips /= 2;
  }
  plan.width = strips * plan.own().outer;
  return plan;
}

class Product {
 public:
  Product(const MatMul& op, const Plan& plan, float* shared)
      : op_(op),
        plan_(plan),
        a_(outer_rows(op.a, op.transpose_a)),
        b_(outer_columns(op.b, op.transpose_b)),
        shared_(shared),
        longer_(plan.rows_are_longer ? op.m() : op.n()),
        shorter_(plan.rows_are_longer ? op.n() : op.m()),
        task_columns_(ceil_div(shorter_, kTaskLength)) {}

  [[nodiscard]] long num_packing_tasks() const {
    return plan_.inner_blocks * ceil_div(shorter_, packing_step());
  }

  void pack(long task) const {
    const long steps = ceil_div(shorter_, packing_step());
    const long block = task / steps;
    const long first = task % steps * packing_step();
    const IndexRange inner = inner_range(block);
    pack_strips(plan_.rows_are_longer ? b_ : a_,
                {first, std::min(first + packing_step(), shorter_), inner.begin, inner.end},
                plan_.shared(),
                shared_strips(inner, first));
  }

  [[nodiscard]] long num_tasks() const { return ceil_div(longer_, plan_.width) * task_columns_; }

  void multiply(long task) const {
    const long length = round_up(ceil_div(shorter_, task_columns_), plan_.shared().outer);
    const IndexRange own = clipped(task / task_columns_ * plan_.width, plan_.width, longer_);
    const IndexRange other = clipped(task % task_columns_ * length, length, shorter_);
    if (other.size() <= 0) {
      return;
    }
    const IndexRange rows = plan_.rows_are_longer ? own : other;
    const IndexRange cols = plan_.rows_are_longer ? other : own;
    if (op_.c.dtype == DType::kF32) {
      multiply_block(rows, cols, op_.c.row<float>(rows.begin) + cols.begin, op_.c.stride);
      return;
    }
    // Filled before it is read; clearing it would cost as much as a pass over it.
    constexpr std::size_t kSums = kTaskWidth * (kTaskLength + kTaskWidth);
    alignas(64) std::array<float, kSums> sums;  // NOLINT(*-member-init)
    multiply_block(rows, cols, sums.data(), cols.size());
    round_rows(sums.data(),
               cols.size(),
               op_.c.row_range(rows.begin, rows.size()).columns(cols.begin, cols.size()).data,
               op_.c.stride,
               rows.size(),
               cols.size());
  }

 private:
  static IndexRange clipped(long begin, long size, long total) {
    return {begin, std::min(begin + size, total)};
  }
  [[nodiscard]] long packing_step() const {
    return kTaskWidth / plan_.shared().width * plan_.shared().outer;
  }
  [[nodiscard]] IndexRange inner_range(long block) const {
    return clipped(block * plan_.inner_block, plan_.inner_block, op_.k());
  }
  [[nodiscard]] float* shared_strips(IndexRange inner, long first) const {
    return shared_ + inner.begin * plan_.shared_width +
           first / plan_.shared().outer * plan_.shared().width * inner.size();
  }

  void multiply_block(IndexRange rows, IndexRange cols, float* c, long c_stride) const {
    alignas(64) std::array<float, kTaskWidth * kInnerBlock> packed;  // NOLINT(*-member-init)
    const IndexRange own = plan_.rows_are_longer ? rows : cols;
    for (long block = 0; block < plan_.inner_blocks; ++block) {
      const IndexRange inner = inner_range(block);
      if (!plan_.a_is_read_in_place) {
        pack_strips(plan_.rows_are_longer ? a_ : b_,
                    {own.begin, own.end, inner.begin, inner.end},
                    plan_.own(),
                    packed.data());
      }
      StripProduct product;
      product.a_strip_rows = plan_.strips.a.outer;
      if (plan_.a_is_read_in_place) {
        product.a = static_cast<const float*>(a_.data) + rows.begin * a_.outer_stride +
                    inner.begin * a_.inner_stride;
        product.a_outer_stride = a_.outer_stride;
        product.a_inner_stride = a_.inner_stride;
        product.a_strip_stride = plan_.strips.a.outer * a_.outer_stride;
      } else {
        product.a = plan_.rows_are_longer ? packed.data() : shared_strips(inner, rows.begin);
        product.a_outer_stride = 1;
        product.a_inner_stride = plan_.strips.a.width;
        product.a_strip_stride = plan_.strips.a.width * inner.size();
      }
      product.b = plan_.rows_are_longer ? shared_strips(inner, cols.begin) : packed.data();
      product.rows = rows.size();
      product.cols = cols.size();
      product.inner = inner.size();
      product.c = c;
      product.c_stride = c_stride;
      product.add = op_.accumulate || block > 0;
      multiply_strips(product);
    }
  }

  const MatMul& op_;
  const Plan& plan_;
  GemmOperand a_;
  GemmOperand b_;
  float* shared_;
  long longer_;
  long shorter_;
  long task_columns_;
};

bool is_native(const MatMul& op) {
  return op.a.dtype == DType::kBF16 && op.k() > 0 && native_bf16_is_preferred();
}

}  // namespace

std::string matmul_implementation_name() {
  return "strips " + instruction_set_name() + ", bf16 " +
         (native_bf16_is_preferred() ? "by " + native_bf16_name() : "as f32");
}

std::size_t cpu_matmul_workspace_bytes(const MatMul& op) {
  select_instruction_set();
  if (is_native(op)) {
    return 0;
  }
  const Plan plan = plan_of(op, 1);
  return static_cast<std::size_t>(plan.shared_width * op.k()) * sizeof(float);
}

void run_on_cpu(CpuQueue& queue, const MatMul& op) {
  if (is_native(op)) {
    multiply_native_bf16(queue.threads(), op);
    return;
  }
  const bool small = op.m() * op.n() * op.k() < kSmallProduct;
  const Plan plan = plan_of(op, small ? 1 : queue.threads().num_threads());
  auto* shared = reinterpret_cast<float*>(queue.workspace(cpu_matmul_workspace_bytes(op)));
  const Product product(op, plan, shared);
  if (small) {
    for (long task = 0; task < product.num_packing_tasks(); ++task) {
      product.pack(task);
    }
    for (long task = 0; task < product.num_tasks(); ++task) {
      product.multiply(task);
    }
    return;
  }
  queue.threads().run(product.num_packing_tasks(), [&](long task) { product.pack(task); });
  queue.threads().run(product.num_tasks(), [&](long task) { product.multiply(task); });
}

}  // namespace lockstep
