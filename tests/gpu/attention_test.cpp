// Attention on both devices: values and gradients, and bits that depend on a head's own shape alone.
#include "kernels/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "operand.h"
#include "support/catch.h"

namespace lockstep {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

struct Case {
  DType dtype = DType::kF32;
  AttentionShape shape;  // batch, seq_length, heads, kv_heads, head_dim
  double dropout = 0;

  [[nodiscard]] AttentionDropout masks() const {
    AttentionDropout masks;
    masks.source.probability = dropout;
    masks.source.seed = 0x123456789abcULL;
    masks.source.step = 7;
    masks.source.site = DropoutSite::kAttention;
    masks.source.layer = 2;
    masks.first_sample = 5;
    masks.first_head = 3;
    return masks;
  }
};

// Blocks of 64 and 128 queries and keys, whole and cut; heads of each kernel, padded and not, and of no kernel's.
const Case kCases[] = {
    {kF32, {2, 1, 2, 2, 8}},
    {kF32, {1, 70, 4, 2, 12}},
    {kF32, {1, 130, 2, 1, 64}},
    {kF32, {1, 67, 1, 1, 80}},
    {kF32, {1, 20, 2, 2, 200}},
    {kBF16, {2, 1, 2, 2, 8}},
    {kBF16, {1, 70, 4, 2, 12}},
    {kBF16, {2, 64, 1, 1, 64}},
    {kBF16, {1, 200, 2, 1, 64}},
    {kBF16, {1, 70, 2, 1, 72}},
    {kBF16, {1, 130, 1, 1, 128}},
    {kBF16, {1, 66, 2, 1, 136}},
    {kF32, {2, 70, 4, 2, 12}, 0.25},
    {kF32, {1, 67, 1, 1, 80}, 0.5},
    {kBF16, {2, 150, 2, 1, 64}, 0.25},
    {kBF16, {1, 70, 4, 2, 72}, 0.1},
    {kBF16, {1, 66, 2, 1, 136}, 0.25},
};

// One of each kernel.
const Case kCasesOfBits[] = {
    {kF32, {1, 70, 2, 1, 12}},
    {kF32, {1, 66, 1, 1, 72}, 0.25},
    {kBF16, {1, 70, 2, 1, 64}},
    {kBF16, {1, 70, 1, 1, 72}, 0.25},
    {kBF16, {1, 66, 1, 1, 136}},
};

double largest_head_norm(const std::vector<float>& values, long head_dim) {
  double largest = 0;
  const auto dim = static_cast<std::size_t>(head_dim);
  for (std::size_t first = 0; first < values.size(); first += dim) {
    double squares = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      squares += std::pow(static_cast<double>(values[first + d]), 2);
    }
    largest = std::max(largest, squares);
  }
  return std::sqrt(largest);
}

double root_mean_square(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) {
    squares += std::pow(static_cast<double>(value), 2);
  }
  return std::sqrt(squares / static_cast<double>(values.size()));
}

/// Operands of one attention, its outputs, and what runs it on both devices.
struct Attention {
  Case c;
  Operand q;
  Operand k;
  Operand v;
  Operand out;
  Operand log_sum_exp;
  Operand dout;
  Operand dq;
  Operand dk;
  Operand dv;

  Attention(TwinQueues& queues, const Case& c_in, Placement placement = {})
      : c(c_in),
        q(queues, c.dtype, rows(), q_cols(), 1, placement),
        k(queues, c.dtype, rows(), kv_cols(), 2, placement),
        v(queues, c.dtype, rows(), kv_cols(), 3, placement),
        out(queues, c.dtype, rows(), q_cols(), 4, placement),
        log_sum_exp(queues, kF32, c.shape.batch * c.shape.heads, c.shape.seq_length, 5),
        dout(queues, c.dtype, rows(), q_cols(), 6, placement),
        dq(queues, c.dtype, rows(), q_cols(), 7, placement),
        dk(queues, c.dtype, rows(), kv_cols(), 8, placement),
        dv(queues, c.dtype, rows(), kv_cols(), 9, placement) {}

  void forward_on_cpu(TwinQueues& queues) {
    const AttentionForward op{
        c.shape, q.cpu(), k.cpu(), v.cpu(), out.cpu(), log_sum_exp.cpu().as<float>(), c.masks()};
    launch(queues.cpu(), op);
  }
  void forward_on_cuda(TwinQueues& queues) const {
    const AttentionForward op{c.shape,
                              q.cuda(),
                              k.cuda(),
                              v.cuda(),
                              out.cuda(),
                              log_sum_exp.cuda().as<float>(),
                              c.masks()};
    run_on_cuda(queues.cuda(), op);
  }
  void backward_on_cpu(TwinQueues& queues) {
    AttentionBackward op;
    op.shape = c.shape;
    op.q = q.cpu();
    op.k = k.cpu();
    op.v = v.cpu();
    op.out = out.cpu();
    op.log_sum_exp = log_sum_exp.cpu().as<float>();
    op.dout = dout.cpu();
    op.dq = dq.cpu();
    op.dk = dk.cpu();
    op.dv = dv.cpu();
    op.dropout = c.masks();
    launch(queues.cpu(), op);
  }
  void backward_on_cuda(TwinQueues& queues) const {
    AttentionBackward op;
    op.shape = c.shape;
    op.q = q.cuda();
    op.k = k.cuda();
    op.v = v.cuda();
    op.out = out.cuda();
    op.log_sum_exp = log_sum_exp.cuda().as<float>();
    op.dout = dout.cuda();
    op.dq = dq.cuda();
    op.dk = dk.cuda();
    op.dv = dv.cuda();
    op.dropout = c.masks();
    run_on_cuda(queues.cuda(), op);
  }

 private:
  [[nodiscard]] long rows() const { return c.shape.batch * c.shape.seq_length; }
  [[nodiscard]] long q_cols() const { return c.shape.heads * c.shape.head_dim; }
  [[nodiscard]] long kv_cols() const { return c.shape.kv_heads * c.shape.head_dim; }
};

/// What explains differences between the devices.
struct Bounds {
  double out = 0;
  double log_sum_exp = 0;
  double dq = 0;
  double dk = 0;
  double dv = 0;

  explicit Bounds(Attention& attention) {
    const AttentionShape& shape = attention.c.shape;
    const DType dtype = attention.c.dtype;
    const auto largest = [](Operand& operand) { return largest_magnitude(operand.from_cpu()); };
    const auto norm = [&](Operand& operand) {
      return largest_head_norm(operand.from_cpu(), shape.head_dim);
    };
    const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    const double of_score =
        twin_bound(kF32, shape.head_dim + 4, scale * norm(attention.q) * norm(attention.k));
    const double kept = 1 / (1 - attention.c.dropout);
    // Relatively, in a probability; tensor cores take it rounded to bf16.
    const double of_probability = kept * (2 * of_score + twin_bound(kF32, shape.seq_length + 8, 1) +
                                          (dtype == kBF16 ? epsilon(kBF16) / 2 : 0));
    const double rounding = dtype == kBF16 ? epsilon(kBF16) : 0;
    out = largest(attention.v) * of_probability + rounding * largest(attention.out);
    log_sum_exp =
        of_score + twin_bound(kF32, shape.seq_length + 8, 1 + largest(attention.log_sum_exp));
    const double dprobability = kept * norm(attention.dout) * norm(attention.v);
    const double of_dscore =
        2 * dprobability * (of_probability + twin_bound(kF32, shape.head_dim, 1));
    const double weight =  // of a key: the sum of its probabilities, at most one a query
        static_cast<double>(shape.seq_length * shape.heads / shape.kv_heads);
    dq = scale * largest(attention.k) * of_dscore + rounding * largest(attention.dq);
    dk = scale * largest(attention.q) * weight * of_dscore + rounding * largest(attention.dk);
    dv = largest(attention.dout) * weight * of_probability + rounding * largest(attention.dv);
  }
};

// Roundings differ by chance, so that they add up to much less than their bound: those of about as many terms to
// their root, as do the terms themselves. In f32 there are many of every term.
bool differs_as_roundings_do(DType dtype, Operand& operand) {
  const std::vector<float> expected = operand.from_cpu();
  std::vector<float> difference = operand.from_cuda();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference[i] -= expected[i];
  }
  const double tolerance = dtype == kBF16 ? epsilon(kBF16) : 64 * epsilon(kF32);
  return root_mean_square(difference) <= tolerance * root_mean_square(expected);
}

}  // namespace

TEST_CASE("attention on a GPU is that of the CPU, wherever operands lie") {
  TwinQueues queues;
  for (const Case& c : kCases) {
    for (const Placement& placement : kPlacements) {
      CAPTURE(c.shape.seq_length, c.shape.head_dim, name_of(c.dtype), c.dropout, placement.offset);
      Attention attention(queues, c, placement);

      attention.forward_on_cuda(queues);
      attention.forward_on_cpu(queues);

      const Bounds bounds(attention);
      CHECK(largest_difference(attention.out) <= bounds.out);
      CHECK(largest_difference(attention.log_sum_exp) <= bounds.log_sum_exp);
      CHECK(differs_as_roundings_do(c.dtype, attention.out));
      CHECK(attention.out.surroundings_agree());
    }
  }
}

TEST_CASE("attention's gradients on a GPU are those of the CPU, wherever operands lie") {
  TwinQueues queues;
  for (const Case& c : kCases) {
    for (const Placement& placement : kPlacements) {
      CAPTURE(c.shape.seq_length, c.shape.head_dim, name_of(c.dtype), c.dropout, placement.offset);
      Attention attention(queues, c, placement);
      attention.forward_on_cpu(queues);
      attention.out.upload();
      attention.log_sum_exp.upload();

      attention.backward_on_cuda(queues);
      attention.backward_on_cpu(queues);

      const Bounds bounds(attention);
      CHECK(largest_difference(attention.dq) <= bounds.dq);
      CHECK(largest_difference(attention.dk) <= bounds.dk);
      CHECK(largest_difference(attention.dv) <= bounds.dv);
      if (c.shape.seq_length > 1) {  // else dq and dk are nothing but roundings
        CHECK(differs_as_roundings_do(c.dtype, attention.dq));
        CHECK(differs_as_roundings_do(c.dtype, attention.dk));
      }
      CHECK(differs_as_roundings_do(c.dtype, attention.dv));
      CHECK(attention.dq.surroundings_agree());
      CHECK(attention.dk.surroundings_agree());
      CHECK(attention.dv.surroundings_agree());
    }
  }
}

TEST_CASE("the bits of attention on a GPU do not depend on where operands lie") {
  TwinQueues queues;
  for (const Case& c : kCasesOfBits) {
    CAPTURE(c.shape.seq_length, c.shape.heads, c.shape.head_dim, name_of(c.dtype));
    Attention expected(queues, c);
    expected.forward_on_cuda(queues);
    expected.backward_on_cuda(queues);
    for (const Placement& placement : {kPlacements[1], kPlacements[2]}) {
      CAPTURE(placement.offset);
      Attention attention(queues, c, placement);

      attention.forward_on_cuda(queues);
      attention.backward_on_cuda(queues);

      CHECK(same_bits(attention.out.from_cuda(), expected.out.from_cuda()));
      CHECK(same_bits(attention.log_sum_exp.from_cuda(), expected.log_sum_exp.from_cuda()));
      CHECK(same_bits(attention.dq.from_cuda(), expected.dq.from_cuda()));
      CHECK(same_bits(attention.dk.from_cuda(), expected.dk.from_cuda()));
      CHECK(same_bits(attention.dv.from_cuda(), expected.dv.from_cuda()));
    }
  }
}

TEST_CASE("the bits of a head on a GPU do not depend on the other heads and sequences") {
  TwinQueues queues;
  for (const DType dtype : {kF32, kBF16}) {
    constexpr long kLength = 70;
    constexpr long kHeadDim = 16;
    Attention all(queues, {dtype, {2, kLength, 3, 3, kHeadDim}});
    Attention alone(queues, {dtype, {1, kLength, 1, 1, kHeadDim}});
    const auto part_of = [&](const std::vector<float>& whole) {
      std::vector<float> part;
      part.reserve(kLength * kHeadDim);
      for (long row = kLength; row < 2 * kLength; ++row) {
        for (long d = 0; d < kHeadDim; ++d) {
          part.push_back(whole[static_cast<std::size_t>((row * 3 + 1) * kHeadDim + d)]);
        }
      }
      return part;
    };
    const auto copy = [&](Operand& from, Operand& to) {
      const std::vector<float> part = part_of(from.from_cpu());
      for (long i = 0; i < kLength * kHeadDim; ++i) {
        const auto value = static_cast<double>(part[static_cast<std::size_t>(i)]);
        to.set(i / kHeadDim, i % kHeadDim, value);
      }
      to.upload();
    };
    copy(all.q, alone.q);
    copy(all.k, alone.k);
    copy(all.v, alone.v);
    copy(all.dout, alone.dout);

    for (Attention* attention : {&all, &alone}) {
      attention->forward_on_cuda(queues);
      attention->backward_on_cuda(queues);
    }

    CHECK(same_bits(part_of(all.out.from_cuda()), alone.out.from_cuda()));
    CHECK(same_bits(part_of(all.dq.from_cuda()), alone.dq.from_cuda()));
    CHECK(same_bits(part_of(all.dk.from_cuda()), alone.dk.from_cuda()));
    CHECK(same_bits(part_of(all.dv.from_cuda()), alone.dv.from_cuda()));
  }
}

TEST_CASE("attention on a GPU ignores later keys, whatever they hold") {
  TwinQueues queues;
  for (const DType dtype : {kF32, kBF16}) {
    Attention attention(queues, {dtype, {1, 40, 1, 1, 16}});
    attention.forward_on_cuda(queues);
    const std::vector<float> before = attention.out.from_cuda();
    for (long d = 0; d < 16; ++d) {
      attention.k.set(39, d, std::numeric_limits<double>::quiet_NaN());
      attention.v.set(39, d, 1e30);
    }
    attention.k.upload();
    attention.v.upload();

    attention.forward_on_cuda(queues);

    const std::vector<float> after = attention.out.from_cuda();
    for (std::size_t i = 0; i < 39 * 16; ++i) {
      CHECK(after[i] == before[i]);
    }
    CHECK(std::isnan(after[39 * 16 + 3]));
  }
}

TEST_CASE("attention on a GPU stands scores far apart") {
  TwinQueues queues;
  for (const DType dtype : {kF32, kBF16}) {
    Attention attention(queues, {dtype, {1, 130, 1, 1, 4}});
    for (long row = 0; row < 130; ++row) {
      for (long d = 0; d < 4; ++d) {
        attention.q.set(row, d, 200.0);
        attention.k.set(row, d, row == 77 ? 1.0 : -1.0);  // scores of 400 and -400
      }
    }
    attention.q.upload();
    attention.k.upload();

    attention.forward_on_cuda(queues);

    CHECK(attention.out.from_cuda()[129 * 4] == attention.v.from_cuda()[77 * 4]);
    CHECK(attention.log_sum_exp.from_cuda()[129] == 400.0F);
    CHECK(attention.log_sum_exp.from_cuda()[0] == -400.0F);
  }
}

TEST_CASE("attention on a GPU needs no place for log_sum_exp") {
  TwinQueues queues;
  for (const DType dtype : {kF32, kBF16}) {
    Attention attention(queues, {dtype, {1, 70, 2, 1, 16}});
    attention.forward_on_cuda(queues);
    const std::vector<float> expected = attention.out.from_cuda();
    const Operand out(queues, dtype, 70, 32, 1);

    run_on_cuda(queues.cuda(),
                AttentionForward{attention.c.shape,
                                 attention.q.cuda(),
                                 attention.k.cuda(),
                                 attention.v.cuda(),
                                 out.cuda(),
                                 nullptr,
                                 {}});

    CHECK(same_bits(out.from_cuda(), expected));
  }
}

}  // namespace lockstep
