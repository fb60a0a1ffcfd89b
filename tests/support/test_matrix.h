// Matrices with repeatable contents for tests of kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bfloat16.h"
#include "device/cpu/cpu_queue.h"
#include "support/forbidden_memory.h"
#include "tensor/matrix.h"

namespace lockstep {

/// Values in [-1, 1) that only depend on `seed` and their index.
inline float test_value(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15U + index * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 31U)) * 0x94d049bb133111ebU;
  return static_cast<float>(static_cast<double>(x >> 40U) * 0x1p-23 - 1.0);
}

/// A matrix in its own memory, `stride` elements from row to row, values as test_value (rounded to
/// bf16 if need be); the memory between rows and after the last holds the value -77 and may be
/// neither written nor read (the latter is found in the build with sanitisers).
class TestMatrix {
 public:
  TestMatrix(DType dtype, long rows, long cols, long stride, std::uint64_t seed)
      : memory_(allocate_host(static_cast<std::size_t>(rows * stride + kGuard) * size_of(dtype))),
        view_(memory_.data(), dtype, rows, cols, stride) {
    for (long i = 0; i < rows * stride + kGuard; ++i) {
      const bool inside = i < rows * stride && i % stride < cols;
      set(i, inside ? test_value(seed, static_cast<std::uint64_t>(i)) : kOutside);
    }
    test::forbid_outside(view_, memory_.data(), memory_.bytes());
  }
  TestMatrix(DType dtype, long rows, long cols, std::uint64_t seed)
      : TestMatrix(dtype, rows, cols, cols, seed) {}
  TestMatrix(const TestMatrix&) = delete;
  TestMatrix& operator=(const TestMatrix&) = delete;
  TestMatrix(TestMatrix&&) = default;
  TestMatrix& operator=(TestMatrix&&) = delete;
  ~TestMatrix() { allow_outside(); }

  [[nodiscard]] const Matrix& view() const { return view_; }
  [[nodiscard]] double at(long row, long col) const { return get(row * view_.stride + col); }
  /// True while nothing between the rows or after the last has been written.
  [[nodiscard]] bool outside_is_untouched() const {
    allow_outside();
    bool untouched = true;
    for (long i = 0; i < view_.rows * view_.stride + kGuard; ++i) {
      const bool inside = i < view_.rows * view_.stride && i % view_.stride < view_.cols;
      untouched = untouched && (inside || get(i) == static_cast<double>(kOutside));
    }
    test::forbid_outside(view_, memory_.data(), memory_.bytes());
    return untouched;
  }
  /// Also of what lies outside.
  [[nodiscard]] bool same_bits(const TestMatrix& other) const {
    allow_outside();
    other.allow_outside();
    const bool same = memory_.bytes() == other.memory_.bytes() &&
                      std::memcmp(memory_.data(), other.memory_.data(), memory_.bytes()) == 0;
    test::forbid_outside(view_, memory_.data(), memory_.bytes());
    test::forbid_outside(other.view_, other.memory_.data(), other.memory_.bytes());
    return same;
  }

 private:
  static constexpr long kGuard = 40;
  static constexpr float kOutside = -77.0F;

  void allow_outside() const { test::allow(memory_.data(), memory_.bytes()); }
  void set(long index, float value) {
    if (view_.dtype == DType::kBF16) {
      view_.as<BFloat16>()[index] = to_bfloat16(value);
    } else {
      view_.as<float>()[index] = value;
    }
  }
  [[nodiscard]] double get(long index) const {
    return static_cast<double>(view_.dtype == DType::kBF16 ? to_float(view_.as<BFloat16>()[index])
                                                           : view_.as<float>()[index]);
  }

  Memory memory_;
  Matrix view_;
};

/// A vector of test values.
inline std::vector<float> test_vector(long count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = test_value(seed, i);
  }
  return values;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace lockstep
