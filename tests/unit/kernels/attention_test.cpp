#include "kernels/attention.h"

#include <cmath>
#include <limits>

#include "device/cpu/cpu_queue.h"
#include "support/catch.h"
#include "support/kernel_matrix.h"
#include "unit/kernels/attention_reference.h"

namespace lockstep {
namespace {

struct Case {
  DType dtype = DType::kF32;
  AttentionShape shape;  // batch, seq_length, heads, kv_heads, head_dim
};

const Case kCases[] = {
    {DType::kF32, {2, 1, 2, 2, 8}},
    {DType::kF32, {1, 5, 4, 2, 12}},
    {DType::kF32, {2, 33, 2, 1, 64}},
    {DType::kF32, {1, 64, 1, 1, 64}},
    {DType::kF32, {1, 100, 3, 1, 12}},
    {DType::kF32, {1, 256, 1, 1, 64}},
    {DType::kF32, {1, 70, 1, 1, 1}},
    {DType::kF32, {1, 65, 1, 1, 130}},
    {DType::kBF16, {2, 1, 2, 2, 8}},
    {DType::kBF16, {1, 5, 4, 2, 12}},
    {DType::kBF16, {2, 100, 2, 1, 12}},
    {DType::kBF16, {1, 130, 2, 1, 64}},
};

// None, and one of heads and samples in the middle of others.
const AttentionDropout kDropouts[] = {
    {},
    {.source = {.probability = 0.3, .seed = 3, .step = 2, .site = DropoutSite::kAttention},
     .first_sample = 5,
     .first_head = 7}};

/// Calls body(case, dropout) for every case without and with dropout.
template <typename Body>
void for_each_case(const Body& body) {
  for (const Case& c : kCases) {
    for (const AttentionDropout& dropout : kDropouts) {
      body(c, dropout);
    }
  }
}

// Operands of one attention, its outputs and the forward and backward launches.
struct Attention {
  AttentionShape shape;
  AttentionDropout dropout;
  KernelMatrix q;
  KernelMatrix k;
  KernelMatrix v;
  KernelMatrix out;
  KernelMatrix log_sum_exp;
  KernelMatrix dout;
  KernelMatrix dq;
  KernelMatrix dk;
  KernelMatrix dv;

  Attention(DType dtype, AttentionShape shape_in, const AttentionDropout& dropout_in = {})
      : shape(shape_in),
        dropout(dropout_in),
        q(dtype, rows(), q_cols()),
        k(dtype, rows(), kv_cols(), 7),
        v(dtype, rows(), kv_cols(), 0),
        out(dtype, rows(), q_cols(), 1),
        log_sum_exp(DType::kF32, shape.batch * shape.heads, shape.seq_length, 0),
        dout(dtype, rows(), q_cols(), 2),
        dq(dtype, rows(), q_cols(), 9),
        dk(dtype, rows(), kv_cols()),
        dv(dtype, rows(), kv_cols(), 5) {
    q.fill_normal(1);
    k.fill_normal(2);
    v.fill_normal(3);
    dout.fill_normal(4);
  }

  void forward(CpuQueue& queue) const {
    launch(queue,
           AttentionForward{shape,
                            q.view(),
                            k.view(),
                            v.view(),
                            out.view(),
                            log_sum_exp.view().as<float>(),
                            dropout});
  }
  void backward(CpuQueue& queue) const {
    launch(queue,
           AttentionBackward{shape,
                             q.view(),
                             k.view(),
                             v.view(),
                             out.view(),
                             log_sum_exp.view().as<float>(),
                             dout.view(),
                             dq.view(),
                             dk.view(),
                             dv.view(),
                             dropout});
  }
  [[nodiscard]] ReferenceAttention reference() const {
    ReferenceAttention reference;
    reference.shape = shape;
    reference.dropout = dropout;
    reference.q = ReferenceRows(q);
    reference.k = ReferenceRows(k);
    reference.v = ReferenceRows(v);
    return reference;
  }
  /// What dropout multiplies a probability by at most.
  [[nodiscard]] double largest_factor() const {
    return dropout.source.drops() ? static_cast<double>(dropout.source.mask().scale) : 1;
  }
  // Largest difference that rounding explains in a score: one rounding for every term.
  [[nodiscard]] double score_error() const {
    const auto dim = static_cast<double>(shape.head_dim);
    return rounding_bound(DType::kF32, shape.head_dim, q.largest() * k.largest() * std::sqrt(dim));
  }
  [[nodiscard]] bool guards_intact() const {
    return out.guards_intact() && log_sum_exp.guards_intact() && dq.guards_intact() &&
           dk.guards_intact() && dv.guards_intact();
  }

 private:
  [[nodiscard]] long rows() const { return shape.batch * shape.seq_length; }
  [[nodiscard]] long q_cols() const { return shape.heads * shape.head_dim; }
  [[nodiscard]] long kv_cols() const { return shape.kv_heads * shape.head_dim; }
};

double largest_head_norm(const KernelMatrix& matrix, long head_dim) {
  double largest = 0;
  for (long row = 0; row < matrix.rows(); ++row) {
    for (long first = 0; first < matrix.cols(); first += head_dim) {
      double squares = 0;
      for (long d = 0; d < head_dim; ++d) {
        squares += matrix.at(row, first + d) * matrix.at(row, first + d);
      }
      largest = std::max(largest, squares);
    }
  }
  return std::sqrt(largest);
}

// What rounding explains in the gradients, given that it is `of_probability` relatively in a
// probability, and one rounding of `out` and of every term in the gradient of a probability.
struct GradientBounds {
  double dq = 0;
  double dk = 0;
  double dv = 0;

  GradientBounds(const Attention& operands, const ReferenceAttention& reference) {
    const AttentionShape& shape = operands.shape;
    const DType dtype = operands.q.dtype();
    const double of_probability =
        2 * operands.score_error() + rounding_bound(DType::kF32, shape.seq_length + 8, 1);
    const double dprobability = operands.largest_factor() *
                                largest_head_norm(operands.dout, shape.head_dim) *
                                largest_head_norm(operands.v, shape.head_dim);
    const double of_dscore =
        2 * rounding_bound(dtype, shape.head_dim, dprobability) + 2 * of_probability * dprobability;
    const double weight = reference.key_weights.largest();
    const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    const long terms = shape.seq_length * shape.heads / shape.kv_heads;
    dq = scale * operands.k.largest() * of_dscore +
         rounding_bound(dtype, shape.seq_length, reference.dq.largest());
    dk = scale * operands.q.largest() * weight * of_dscore +
         rounding_bound(dtype, terms, reference.dk.largest());
    dv = weight * operands.dout.largest() * of_probability +
         rounding_bound(dtype, terms, reference.dv.largest());
  }
};

template <typename Reference>
double difference(const KernelMatrix& found, const Reference& expected) {
  return largest_difference(found, [&](long row, long col) { return expected(row, col); });
}

}  // namespace

TEST_CASE("attention matches softmax attention in f64, without and with dropout") {
  for_each_case([](const Case& c, const AttentionDropout& dropout) {
    ReferenceAttention reference = Attention(c.dtype, c.shape, dropout).reference();
    reference.forward();
    for_each_instruction_set([&] {
      CAPTURE(c.shape.seq_length, c.shape.heads, c.shape.head_dim, name_of(c.dtype));
      CAPTURE(dropout.source.probability);
      CpuQueue queue(2);
      const Attention attention(c.dtype, c.shape, dropout);

      attention.forward(queue);

      // A score's error is a relative error of its probability; then a sum over the keys.
      const double largest = attention.largest_factor() * attention.v.largest();
      const double of_sums = rounding_bound(c.dtype, c.shape.seq_length + 8, largest);
      CHECK(difference(attention.out, reference.out) <=
            of_sums + 2 * attention.score_error() * largest);
      CHECK(difference(attention.log_sum_exp, reference.log_sum_exp) <=
            attention.score_error() + rounding_bound(DType::kF32, c.shape.seq_length + 8, 1));
      CHECK(attention.guards_intact());
    });
  });
}

TEST_CASE("attention's gradients match those of the f64 reference, without and with dropout") {
  for_each_case([](const Case& c, const AttentionDropout& dropout) {
    const Attention operands(c.dtype, c.shape, dropout);
    ReferenceAttention reference = operands.reference();
    reference.backward(ReferenceRows(operands.dout));
    const GradientBounds bounds(operands, reference);
    for_each_instruction_set([&] {
      CAPTURE(c.shape.seq_length, c.shape.heads, c.shape.head_dim, name_of(c.dtype));
      CAPTURE(dropout.source.probability);
      CpuQueue queue(2);
      const Attention attention(c.dtype, c.shape, dropout);

      attention.forward(queue);
      attention.backward(queue);

      CHECK(difference(attention.dq, reference.dq) <= bounds.dq);
      CHECK(difference(attention.dk, reference.dk) <= bounds.dk);
      CHECK(difference(attention.dv, reference.dv) <= bounds.dv);
      CHECK(attention.guards_intact());
    });
  });
}

TEST_CASE("the reference's gradients match finite differences of its forward pass") {
  const AttentionDropout& dropout = kDropouts[GENERATE(0, 1)];
  const Attention operands(DType::kF32, {1, 7, 4, 2, 6}, dropout);
  ReferenceAttention reference = operands.reference();
  const ReferenceRows weight(operands.dout);
  reference.backward(weight);
  constexpr double kStep = 1e-5;
  // Central differences: a cubic term, and cancellation in f64.
  const double tolerance = 100 * (kStep * kStep + epsilon(DType::kF64) / kStep);
  const auto slope_matches = [&](ReferenceRows* input, const ReferenceRows& gradient) {
    for (std::size_t i = 0; i < input->values.size(); i += 5) {
      double& value = input->values[i];
      value += kStep;
      const double above = reference.loss(weight);
      value -= 2 * kStep;
      const double below = reference.loss(weight);
      value += kStep;
      CHECK(std::abs((above - below) / (2 * kStep) - gradient.values[i]) <= tolerance);
    }
  };

  slope_matches(&reference.q, reference.dq);
  slope_matches(&reference.k, reference.dk);
  slope_matches(&reference.v, reference.dv);
}

TEST_CASE("attention has the same bits for any number of threads") {
  const AttentionDropout& dropout = kDropouts[GENERATE(0, 1)];
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Attention expected(dtype, {2, 150, 4, 2, 24}, dropout);
    CpuQueue one(1);
    expected.forward(one);
    expected.backward(one);
    for (const int threads : {2, 5}) {
      CpuQueue queue(threads);
      const Attention attention(dtype, expected.shape, dropout);

      attention.forward(queue);
      attention.backward(queue);

      CHECK(attention.out == expected.out);
      CHECK(attention.log_sum_exp == expected.log_sum_exp);
      CHECK(attention.dq == expected.dq);
      CHECK(attention.dk == expected.dk);
      CHECK(attention.dv == expected.dv);
    }
  }
}

TEST_CASE("the bits of a head do not depend on the other heads and sequences") {
  const AttentionDropout& dropout = kDropouts[GENERATE(0, 1)];
  for_each_instruction_set([&] {
    for (const long head_dim : {12L, 16L}) {  // sums in scratch memory, and in dk and dv
      CpuQueue queue(1);
      const Attention all(DType::kF32, {3, 70, 4, 4, head_dim}, dropout);
      all.forward(queue);
      all.backward(queue);
      AttentionDropout own = dropout;
      own.first_sample += 2;
      own.first_head += 2;
      Attention alone(DType::kF32, {1, 70, 1, 1, head_dim}, own);
      const auto copy = [&](const KernelMatrix& from, KernelMatrix* to) {
        for (long r = 0; r < 70; ++r) {
          for (long c = 0; c < head_dim; ++c) {
            to->set(r, c, from.at(140 + r, 2 * head_dim + c));
          }
        }
      };
      copy(all.q, &alone.q);
      copy(all.k, &alone.k);
      copy(all.v, &alone.v);
      copy(all.dout, &alone.dout);

      alone.forward(queue);
      alone.backward(queue);

      const auto same = [&](const KernelMatrix& whole, const KernelMatrix& part) {
        return largest_difference(
            part, [&](long row, long col) { return whole.at(140 + row, 2 * head_dim + col); });
      };
      CHECK(same(all.out, alone.out) == 0);
      CHECK(same(all.dq, alone.dq) == 0);
      CHECK(same(all.dk, alone.dk) == 0);
      CHECK(same(all.dv, alone.dv) == 0);
    }
  });
}

TEST_CASE("attention ignores later keys, whatever they hold") {
  for_each_instruction_set([] {
    CpuQueue queue(1);
    Attention attention(DType::kF32, {1, 40, 1, 1, 16});
    attention.forward(queue);
    const KernelMatrix before = attention.out;
    for (long d = 0; d < 16; ++d) {
      attention.k.set(39, d, std::numeric_limits<double>::quiet_NaN());
      attention.v.set(39, d, 1e30);
    }

    attention.forward(queue);

    for (long row = 0; row < 39; ++row) {
      CHECK(attention.out.at(row, 3) == before.at(row, 3));
    }
    CHECK(std::isnan(attention.out.at(39, 3)));
  });
}

TEST_CASE("attention stands scores far apart") {
  for_each_instruction_set([] {
    CpuQueue queue(1);
    Attention attention(DType::kF32, {1, 130, 1, 1, 4});
    attention.q.fill_normal(1, 0.0, 200.0);
    for (long row = 0; row < 130; ++row) {
      for (long d = 0; d < 4; ++d) {
        attention.k.set(row, d, row == 77 ? 1.0 : -1.0);  // scores of 400 and -400
      }
    }

    attention.forward(queue);

    CHECK(attention.out.at(129, 0) == attention.v.at(77, 0));
    CHECK(attention.log_sum_exp.at(0, 129) == 400.0);
    CHECK(attention.log_sum_exp.at(0, 0) == -400.0);
  });
}

TEST_CASE("a dry queue records attention's cost and scratch") {
  DryQueue queue;
  AttentionBackward op;
  op.shape = {2, 10, 4, 2, 12};
  op.dk = {nullptr, DType::kF32, 20, 24};
  op.dv = op.dk;

  launch(queue, op);

  CHECK(queue.total().operations == 10.0 * 12 * 2 * 4 * 55);
  CHECK(queue.workspace_bytes() == 2UL * 2 * 2 * 10 * 16 * sizeof(float));
}

TEST_CASE("rotary turns each pair by its position's angle and back") {
  for_each_instruction_set([] {
    CpuQueue queue(2);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const long head_dim : {2L, 12L, 64L}) {
        const long seq_length = 5;
        const KernelMatrix before =
            KernelMatrix(dtype, 3 * seq_length, 2 * head_dim).fill_normal(1);
        const KernelMatrix x = before;
        KernelMatrix cos(DType::kF32, seq_length, head_dim / 2, 0);
        KernelMatrix sin(DType::kF32, seq_length, head_dim / 2, 0);
        for (long p = 0; p < seq_length; ++p) {
          for (long i = 0; i < head_dim / 2; ++i) {
            const auto angle = static_cast<double>(p) / static_cast<double>(i + 1);
            cos.set(p, i, std::cos(angle));
            sin.set(p, i, std::sin(angle));
          }
        }
        Rotary op;
        op.x = x.view();
        op.head_dim = head_dim;
        op.seq_length = seq_length;
        op.cos = cos.view().as<float>();
        op.sin = sin.view().as<float>();
        const double bound = rounding_bound(dtype, 4, 2 * before.largest());

        launch(queue, op);

        CHECK(largest_difference(x, [&](long row, long col) {
                const long half = head_dim / 2;
                const long i = col % half;
                const bool low = col % head_dim < half;
                const double other = before.at(row, low ? col + half : col - half);
                const long p = row % seq_length;
                return before.at(row, col) * cos.at(p, i) + (low ? -other : other) * sin.at(p, i);
              }) <= bound);
        op.inverse = true;
        launch(queue, op);
        CHECK(largest_difference(x, [&](long row, long col) { return before.at(row, col); }) <=
              3 * bound);
        CHECK(x.guards_intact());
      }
    }
  });
}

}  // namespace lockstep
