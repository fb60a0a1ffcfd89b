// Small integer arithmetic used everywhere.
#pragma once

#include <concepts>

namespace lockstep {

/// Smallest number of parts of size `part` that cover `total`.
template <std::integral T>
constexpr T ceil_div(T total, T part) {
  return (total + part - 1) / part;
}

/// Smallest multiple of `multiple` that is not below `value`.
template <std::integral T>
constexpr T round_up(T value, T multiple) {
  return ceil_div(value, multiple) * multiple;
}

template <std::integral T>
constexpr bool is_power_of_two(T value) {
  return value > 0 && (value & (value - 1)) == 0;
}

/// The half-open range of items that part `index` of `parts` owns: floor(index*total/parts) and on.
struct IndexRange {
  long begin = 0;
  long end = 0;
  [[nodiscard]] constexpr long size() const { return end - begin; }
};

constexpr IndexRange part_of(long total, long parts, long index) {
  return {index * total / parts, (index + 1) * total / parts};
}

}  // namespace lockstep
