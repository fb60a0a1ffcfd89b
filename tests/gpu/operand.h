// Matrices on both devices whose values depend on row and column alone, wherever they lie, and comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "twins.h"

namespace lockstep {

/// Where a matrix lies in its memory: behind `offset` elements a row, before `padding` of them.
struct Placement {
  long offset = 0;
  long padding = 0;
};

/// Rows that start at multiples of 16 bytes wherever columns allow, rows that do not, and rows with a stride that does.
inline const std::vector<Placement> kPlacements = {{0, 0}, {1, 2}, {8, 24}};

inline float decode_element(DType dtype, const std::byte* from) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, from, 4);
    return value;
  }
  BFloat16 value;
  std::memcpy(&value, from, 2);
  return to_float(value);
}

/// Standard normal values, times `scale`, plus `shift`; what is around them is NaN, so that no kernel can use it
/// unnoticed.
class Operand {
 public:
  Operand(TwinQueues& queues,
          DType dtype,
          long rows,
          long cols,
          std::uint64_t site,
          Placement placement = {},
          double scale = 1.0,
          double shift = 0.0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        placement_(placement),
        bytes_(queues, bytes_of(rows * stride(), dtype)) {
    std::memset(bytes_.cpu(), 0xff, bytes_of(rows * stride(), dtype));
    const RandomStream random(23, RandomPurpose::kTest, site);
    for (long row = 0; row < rows; ++row) {
      for (long col = 0; col < cols; ++col) {
        const auto index = static_cast<std::uint64_t>(row * cols + col);
        set(row, col, shift + scale * static_cast<double>(random.normal(index)));
      }
    }
    upload();
  }

  [[nodiscard]] Matrix cpu() { return view(bytes_.cpu()); }
  [[nodiscard]] Matrix cuda() const { return view(bytes_.cuda()); }
  /// On the CPU; `upload` brings it to the device.
  void set(long row, long col, double value) {
    const auto rounded = static_cast<float>(value);
    if (dtype_ == DType::kF32) {
      cpu().row<float>(row)[col] = rounded;
    } else {
      cpu().row<BFloat16>(row)[col] = to_bfloat16(rounded);
    }
  }
  void upload() { bytes_.upload(); }

  /// Values row by row, without what is around them.
  [[nodiscard]] std::vector<float> from_cpu() { return values(bytes_.cpu()); }
  [[nodiscard]] std::vector<float> from_cuda() const { return values(bytes_.download().data()); }
  /// Whether both devices have the same bytes around the values.
  [[nodiscard]] bool surroundings_agree() {
    const std::vector<std::byte> cuda = bytes_.download();
    for (long i = 0; i < rows_ * stride(); ++i) {
      const long col = i % stride() - placement_.offset;
      const std::size_t size = size_of(dtype_);
      const std::size_t at = static_cast<std::size_t>(i) * size;
      if ((col < 0 || col >= cols_) &&
          std::memcmp(bytes_.cpu() + at, cuda.data() + at, size) != 0) {
        return false;
      }
    }
    return true;
  }

 private:
  [[nodiscard]] long stride() const { return placement_.offset + cols_ + placement_.padding; }
  [[nodiscard]] Matrix view(std::byte* data) const {
    return {data + bytes_of(placement_.offset, dtype_), dtype_, rows_, cols_, stride()};
  }
  [[nodiscard]] std::vector<float> values(const std::byte* bytes) const {
    std::vector<float> result;
    result.reserve(static_cast<std::size_t>(rows_ * cols_));
    for (long row = 0; row < rows_; ++row) {
      for (long col = 0; col < cols_; ++col) {
        const long element = row * stride() + placement_.offset + col;
        result.push_back(decode_element(dtype_, bytes + bytes_of(element, dtype_)));
      }
    }
    return result;
  }

  DType dtype_;
  long rows_;
  long cols_;
  Placement placement_;
  TwinBytes bytes_;
};

inline double largest_magnitude(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  return largest;
}

/// A NaN on one side only counts as infinitely far.
inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : HUGE_VAL;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
    if (!(difference <= largest) && !both_nan) {
      largest = std::isnan(difference) ? HUGE_VAL : difference;
    }
  }
  return largest;
}

inline double largest_difference(Operand& operand) {
  return largest_difference(operand.from_cpu(), operand.from_cuda());
}

/// How far two devices may be apart in values up to `magnitude` after `operations` roundings in f32 each, and one in
/// `dtype`, which may fall to either side. Errors in f32 count twice for safety.
inline double twin_bound(DType dtype, long operations, double magnitude) {
  const double in_f32 = 4 * static_cast<double>(operations) * epsilon(DType::kF32);
  return (in_f32 + (dtype == DType::kF32 ? 0.0 : epsilon(dtype))) * magnitude;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Normal values.
inline std::vector<float> random_values(std::size_t count, std::uint64_t site, double scale = 1.0) {
  const RandomStream random(29, RandomPurpose::kTest, site);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(scale) * random.normal(i);
  }
  return values;
}

}  // namespace lockstep
