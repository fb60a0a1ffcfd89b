#include "base/human.h"

#include <array>
#include <cmath>
#include <cstddef>

#include <spdlog/fmt/fmt.h>

namespace lockstep {
namespace {

/// `value` in the largest of `units` that keeps its one-decimal text below `base`.
template <std::size_t Count>
std::string scaled(double value, double base, const std::array<const char*, Count>& units) {
  std::size_t unit = 0;
  while (unit + 1 < Count && std::round(std::abs(value) * 10.0) >= base * 10.0) {
    value /= base;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) {
    return fmt::format("{:.0f}{}", value, units[0]);
  }
  return fmt::format("{:.1f}{}", value, units[unit]);
}

}  // namespace

std::string human_bytes(std::int64_t bytes) {
  constexpr std::array kUnits{" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return scaled(static_cast<double>(bytes), 1024.0, kUnits);
}

std::string human_count(double count) {
  if (!std::isfinite(count)) {
    return "-";
  }
  constexpr std::array kUnits{"", " k", " M", " G", " T", " P"};
  return scaled(count, 1000.0, kUnits);
}

std::string human_duration(double seconds) {
  constexpr double kTooLong = 1e15;  // keeps the conversion to an integer defined
  if (!(seconds >= 0.0 && seconds < kTooLong)) {
    return "-";
  }
  if (seconds < 9.995) {
    return fmt::format("{:.2f}s", seconds);
  }
  const long whole = std::lround(seconds);
  const long minutes = whole / 60;
  const long hours = minutes / 60;
  if (minutes == 0) {
    return fmt::format("{}s", whole);
  }
  if (hours == 0) {
    return fmt::format("{}m {:02d}s", minutes, whole % 60);
  }
  if (hours < 24) {
    return fmt::format("{}h {:02d}m", hours, minutes % 60);
  }
  return fmt::format("{}d {:02d}h", hours / 24, hours % 24);
}

}  // namespace lockstep
