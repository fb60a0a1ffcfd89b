// Attention and its gradients in f64, one score at a time: what the kernels are tested against.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"
#include "support/kernel_matrix.h"

namespace lockstep {

/// Rows of f64 in the layout of the kernels' operands.
struct ReferenceRows {
  long cols = 0;
  std::vector<double> values;

  ReferenceRows() = default;
  ReferenceRows(long rows, long cols_in)
      : cols(cols_in), values(static_cast<std::size_t>(rows * cols_in), 0.0) {}
  explicit ReferenceRows(const KernelMatrix& matrix) : ReferenceRows(matrix.rows(), matrix.cols()) {
    for (long r = 0; r < matrix.rows(); ++r) {
      for (long c = 0; c < cols; ++c) {
        (*this)(r, c) = matrix.at(r, c);
      }
    }
  }
  [[nodiscard]] double largest() const {
    double largest = 0;
    for (const double value : values) {
      largest = std::max(largest, std::abs(value));
    }
    return largest;
  }
  double& operator()(long row, long col) {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  double operator()(long row, long col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
};

struct ReferenceAttention {
  AttentionShape shape;
  AttentionDropout dropout;
  ReferenceRows q;
  ReferenceRows k;
  ReferenceRows v;
  ReferenceRows out;
  ReferenceRows log_sum_exp;  // [batch x heads] rows of seq_length
  ReferenceRows dq;
  ReferenceRows dk;
  ReferenceRows dv;
  // Sums of a key's probabilities, or of what dropout makes of them if that is more.
  ReferenceRows key_weights;  // [batch x kv_heads] rows

  /// Probabilities of query `query` of (batch, head) over keys 0..query; fills log_sum_exp.
  std::vector<double> probabilities(long batch, long head, long query) {
    const long first_row = batch * shape.seq_length;
    std::vector<double> scores;
    for (long key = 0; key <= query; ++key) {
      double score = 0;
      for (long d = 0; d < shape.head_dim; ++d) {
        score += q(first_row + query, head * shape.head_dim + d) *
                 k(first_row + key, kv_column(head) + d);
      }
      scores.push_back(score / std::sqrt(static_cast<double>(shape.head_dim)));
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) {
      score = std::exp(score - max);
      sum += score;
    }
    for (double& score : scores) {
      score /= sum;
    }
    log_sum_exp(batch * shape.heads + head, query) = max + std::log(sum);
    return scores;
  }

  /// What dropout multiplies a probability by.
  [[nodiscard]] double factor(long batch, long head, long query, long key) const {
    if (!dropout.source.drops()) {
      return 1;
    }
    const DropoutMask mask = dropout.source.mask(dropout.first_head + head);
    return static_cast<double>(mask.factor(dropout.first_sample + batch, query, key));
  }

  void forward() {
    out = ReferenceRows(shape.batch * shape.seq_length, q.cols);
    log_sum_exp = ReferenceRows(shape.batch * shape.heads, shape.seq_length);
    for_each_query([&](long batch, long head, long query) {
      const std::vector<double> p = probabilities(batch, head, query);
      const long first_row = batch * shape.seq_length;
      for (long key = 0; key <= query; ++key) {
        for (long d = 0; d < shape.head_dim; ++d) {
          out(first_row + query, head * shape.head_dim + d) +=
              factor(batch, head, query, key) * p[static_cast<std::size_t>(key)] *
              v(first_row + key, kv_column(head) + d);
        }
      }
    });
  }

  void backward(const ReferenceRows& dout) {
    dq = ReferenceRows(shape.batch * shape.seq_length, q.cols);
    dk = ReferenceRows(shape.batch * shape.seq_length, k.cols);
    dv = dk;
    key_weights = ReferenceRows(shape.batch * shape.kv_heads, shape.seq_length);
    log_sum_exp = ReferenceRows(shape.batch * shape.heads, shape.seq_length);
    for_each_query(
        [&](long batch, long head, long query) { add_gradients(dout, batch, head, query); });
  }

  /// sum of out * weight: a loss whose gradient at out is `weight`.
  double loss(const ReferenceRows& weight) {
    forward();
    double sum = 0;
    for (std::size_t i = 0; i < weight.values.size(); ++i) {
      sum += out.values[i] * weight.values[i];
    }
    return sum;
  }

 private:
  [[nodiscard]] long kv_column(long head) const {
    return head / (shape.heads / shape.kv_heads) * shape.head_dim;
  }

  template <typename Body>
  void for_each_query(const Body& body) const {
    for (long batch = 0; batch < shape.batch; ++batch) {
      for (long head = 0; head < shape.heads; ++head) {
        for (long query = 0; query < shape.seq_length; ++query) {
          body(batch, head, query);
        }
      }
    }
  }

  void add_gradients(const ReferenceRows& dout, long batch, long head, long query) {
    const std::vector<double> p = probabilities(batch, head, query);
    const long row = batch * shape.seq_length + query;
    const long column = head * shape.head_dim;
    const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
    std::vector<double> dp(p.size(), 0.0);
    std::vector<double> used = p;
    double mean = 0;
    for (long key = 0; key <= query; ++key) {
      const auto i = static_cast<std::size_t>(key);
      for (long d = 0; d < shape.head_dim; ++d) {
        dp[i] += dout(row, column + d) * v(row - query + key, kv_column(head) + d);
      }
      dp[i] *= factor(batch, head, query, key);
      used[i] *= factor(batch, head, query, key);
      mean += p[i] * dp[i];
    }
    for (long key = 0; key <= query; ++key) {
      const auto i = static_cast<std::size_t>(key);
      const long key_row = row - query + key;
      key_weights(batch * shape.kv_heads + kv_column(head) / shape.head_dim, key) +=
          std::max(p[i], used[i]);
      const double dscore = p[i] * (dp[i] - mean) * scale;
      for (long d = 0; d < shape.head_dim; ++d) {
        dq(row, column + d) += dscore * k(key_row, kv_column(head) + d);
        dk(key_row, kv_column(head) + d) += dscore * q(row, column + d);
        dv(key_row, kv_column(head) + d) += used[i] * dout(row, column + d);
      }
    }
  }
};

}  // namespace lockstep
