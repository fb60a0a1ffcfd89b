// Layer norm, RMS norm and their gradients in f64: what the kernels are tested against.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/norm.h"

namespace lockstep {

struct ReferenceNorm {
  NormKind kind = NormKind::kLayer;
  double epsilon = 1e-5;
  std::vector<double> gain;
  std::vector<double> bias;
  double mean = 0;
  double rstd = 0;

  /// Normalised values of a row, before gain and bias; fills mean and rstd.
  std::vector<double> normalise(const std::vector<double>& x) {
    const auto width = static_cast<double>(x.size());
    mean = 0;
    if (kind == NormKind::kLayer) {
      for (const double value : x) {
        mean += value / width;
      }
    }
    double variance = 0;
    for (const double value : x) {
      variance += (value - mean) * (value - mean) / width;
    }
    rstd = 1 / std::sqrt(variance + epsilon);
    std::vector<double> normal;
    normal.reserve(x.size());
    for (const double value : x) {
      normal.push_back((value - mean) * rstd);
    }
    return normal;
  }

  std::vector<double> forward(const std::vector<double>& x) {
    std::vector<double> y = normalise(x);
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = y[i] * gain[i] + bias[i];
    }
    return y;
  }

  std::vector<double> backward(const std::vector<double>& x, const std::vector<double>& dy) {
    const std::vector<double> normal = normalise(x);
    const auto width = static_cast<double>(x.size());
    double mean_gradient = 0;
    double mean_product = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      mean_gradient += dy[i] * gain[i] / width;
      mean_product += dy[i] * gain[i] * normal[i] / width;
    }
    if (kind == NormKind::kRms) {
      mean_gradient = 0;
    }
    std::vector<double> dx;
    dx.reserve(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      dx.push_back(rstd * (dy[i] * gain[i] - mean_gradient - normal[i] * mean_product));
    }
    return dx;
  }
};

}  // namespace lockstep
