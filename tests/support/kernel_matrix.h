// Matrices for tests of kernels: random values, values as f64, and guards around them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <hwy/targets.h>

#include "base/bfloat16.h"
#include "base/philox.h"
#include "support/catch.h"
#include "support/forbidden_memory.h"
#include "tensor/matrix.h"

namespace lockstep {

/// Owns a matrix whose rows lie `gap` elements apart, filled with guard bytes all around and in the
/// gaps: whatever a kernel writes beyond its columns is found by `guards_intact`, and what it reads
/// there by AddressSanitizer in the build with sanitisers.
class KernelMatrix {
 public:
  KernelMatrix(DType dtype, long rows, long cols, long gap = 3)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        stride_(cols + gap),
        bytes_((static_cast<std::size_t>(rows * stride_) + 2 * kGuard) * size_of(dtype), kPattern) {
    fill_zero();
    forbid_guards();
  }
  KernelMatrix(const KernelMatrix& other)
      : dtype_(other.dtype_), rows_(other.rows_), cols_(other.cols_), stride_(other.stride_) {
    other.allow_guards();
    bytes_ = other.bytes_;
    other.forbid_guards();
    forbid_guards();
  }
  KernelMatrix(KernelMatrix&&) = default;
  KernelMatrix& operator=(const KernelMatrix&) = delete;
  KernelMatrix& operator=(KernelMatrix&&) = delete;
  ~KernelMatrix() = default;

  [[nodiscard]] Matrix view() const {
    auto* data = const_cast<std::uint8_t*>(bytes_.data()) + kGuard * size_of(dtype_);
    return {data, dtype_, rows_, cols_, stride_};
  }
  [[nodiscard]] double at(long row, long col) const {
    if (dtype_ == DType::kBF16) {
      return static_cast<double>(to_float(view().row<BFloat16>(row)[col]));
    }
    return static_cast<double>(view().row<float>(row)[col]);
  }
  /// Rounds to the dtype.
  void set(long row, long col, double value) {
    if (dtype_ == DType::kBF16) {
      view().row<BFloat16>(row)[col] = to_bfloat16(static_cast<float>(value));
    } else {
      view().row<float>(row)[col] = static_cast<float>(value);
    }
  }
  void fill_zero() {
    for_each([&](long r, long c) { set(r, c, 0.0); });
  }
  /// Standard normal numbers, times `scale`, plus `offset`.
  KernelMatrix& fill_normal(std::uint64_t site, double scale = 1.0, double offset = 0.0) {
    const RandomStream random(17, RandomPurpose::kTest, site);
    for_each([&](long r, long c) {
      set(r,
          c,
          offset + scale * static_cast<double>(
                               random.normal(static_cast<std::uint64_t>(r * cols_ + c))));
    });
    return *this;
  }
  [[nodiscard]] double largest() const {
    double largest = 0;
    for_each([&](long r, long c) { largest = std::max(largest, std::abs(at(r, c))); });
    return largest;
  }
  [[nodiscard]] bool guards_intact() const {
    KernelMatrix copy = *this;
    copy.fill_zero();
    return copy == KernelMatrix(dtype_, rows_, cols_, stride_ - cols_);
  }
  friend bool operator==(const KernelMatrix& a, const KernelMatrix& b) {
    a.allow_guards();
    b.allow_guards();
    const bool equal = a.bytes_ == b.bytes_;
    a.forbid_guards();
    b.forbid_guards();
    return equal;
  }

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] long rows() const { return rows_; }
  [[nodiscard]] long cols() const { return cols_; }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint8_t kPattern = 0xa5;

  void allow_guards() const { test::allow(bytes_.data(), bytes_.size()); }
  void forbid_guards() const { test::forbid_outside(view(), bytes_.data(), bytes_.size()); }

  template <typename Body>
  void for_each(Body body) const {
    for (long r = 0; r < rows_; ++r) {
      for (long c = 0; c < cols_; ++c) {
        body(r, c);
      }
    }
  }

  DType dtype_;
  long rows_;
  long cols_;
  long stride_;
  std::vector<std::uint8_t> bytes_;
};

/// Largest difference that rounding explains: `operations` roundings in f32 of values as large as
/// `magnitude`, and one in the dtype of the result. Errors in f32 count twice for safety.
inline double rounding_bound(DType dtype, long operations, double magnitude) {
  const double in_f32 = 2 * static_cast<double>(operations) * epsilon(DType::kF32);
  return (in_f32 + epsilon(dtype) / 2) * magnitude;
}

/// Largest |found - expected(r, c)|.
template <typename Expected>
double largest_difference(const KernelMatrix& found, const Expected& expected) {
  double largest = 0;
  for (long r = 0; r < found.rows(); ++r) {
    for (long c = 0; c < found.cols(); ++c) {
      const double difference = std::abs(found.at(r, c) - expected(r, c));
      largest = difference <= largest ? largest : difference;  // keeps a NaN
    }
  }
  return largest;
}

/// Runs `body` once with every instruction set that this processor and the kernels share.
inline void for_each_instruction_set(const std::function<void()>& body) {
  const std::int64_t supported = hwy::SupportedTargets();
  for (const std::int64_t target :
       {std::int64_t{HWY_AVX3}, std::int64_t{HWY_AVX2}, std::int64_t{HWY_SSE4}}) {
    if ((supported & target) != 0) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      INFO("Highway target " << target);
      body();
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace lockstep
