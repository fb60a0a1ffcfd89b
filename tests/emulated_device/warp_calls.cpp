#include "emulated_device/warp_calls.h"

#include <bit>
#include <cstring>

#include "emulated_device/access_checks.h"
#include "emulated_device/fault.h"

namespace lockstep::emulated {
namespace {

using Lanes = std::array<KernelThread*, kWarpLanes>;

template <typename T>
T given_by(const KernelThread& lane) {
  T value;
  std::memcpy(&value, lane.given.data(), sizeof value);
  return value;
}

template <typename T>
void give(KernelThread& lane, const T& value) {
  static_assert(sizeof value <= sizeof lane.received);
  std::memcpy(lane.received.data(), &value, sizeof value);
}

template <typename Function>
void for_lanes(unsigned mask, const Lanes& lanes, Function function) {
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1U) != 0) {
      function(lane, *lanes[lane]);
    }
  }
}

struct Shuffle {
  std::uint64_t bits = 0;
  unsigned source = 0;
};

void shuffle(unsigned mask, const Lanes& lanes) {
  for_lanes(mask, lanes, [&](unsigned number, KernelThread& lane) {
    const unsigned source = given_by<Shuffle>(lane).source;
    if (source >= kWarpLanes || (mask >> source & 1U) == 0) {
      fault(
          "lane {} shuffles at line {} from lane {}, which mask {:#010x} does not name or the "
          "block does not have",
          number,
          lane.line,
          source,
          mask);
    }
    give(lane, given_by<Shuffle>(*lanes[source]).bits);
  });
}

void ballot(unsigned mask, const Lanes& lanes) {
  unsigned votes = 0;
  for_lanes(mask, lanes, [&](unsigned number, const KernelThread& lane) {
    votes |= given_by<unsigned>(lane) != 0 ? 1U << number : 0U;
  });
  for_lanes(mask, lanes, [&](unsigned, KernelThread& lane) { give(lane, votes); });
}

void match_any(unsigned mask, const Lanes& lanes) {
  for_lanes(mask, lanes, [&](unsigned, KernelThread& lane) {
    unsigned same = 0;
    for_lanes(mask, lanes, [&](unsigned number, const KernelThread& other) {
      same |= given_by<std::uint64_t>(other) == given_by<std::uint64_t>(lane) ? 1U << number : 0U;
    });
    give(lane, same);
  });
}

unsigned combine(WarpCall call, unsigned a, unsigned b) {
  switch (call) {
    case WarpCall::kAdd:
      return a + b;
    case WarpCall::kMin:
      return std::min(a, b);
    case WarpCall::kMax:
      return std::max(a, b);
    case WarpCall::kMinSigned:
      return static_cast<int>(a) < static_cast<int>(b) ? a : b;
    case WarpCall::kMaxSigned:
      return static_cast<int>(a) < static_cast<int>(b) ? b : a;
    case WarpCall::kAnd:
      return a & b;
    case WarpCall::kOr:
      return a | b;
    default:
      return a ^ b;
  }
}

void reduce(WarpCall call, unsigned mask, const Lanes& lanes) {
  unsigned result = 0;
  bool first = true;
  for_lanes(mask, lanes, [&](unsigned, const KernelThread& lane) {
    const auto value = given_by<unsigned>(lane);
    result = first ? value : combine(call, result, value);
    first = false;
  });
  for_lanes(mask, lanes, [&](unsigned, KernelThread& lane) { give(lane, result); });
}

float low_half(std::uint32_t word) {
  return std::bit_cast<float>(word << 16U);
}

float high_half(std::uint32_t word) {
  return std::bit_cast<float>(word & 0xffff0000U);
}

struct Product {
  std::array<float, 4> d{};
  std::array<std::uint32_t, 4> a{};
  std::array<std::uint32_t, 2> b{};
};

// Registers to matrices and back, as primitives.cuh tells. Sums go up in k, each product and sum rounded to f32: one of
// the orders that tensor cores may use.
void product(const Lanes& lanes) {
  float a[16][16];
  float b[16][8];
  float d[16][8];
  for (unsigned number = 0; number < kWarpLanes; ++number) {
    const auto held = given_by<Product>(*lanes[number]);
    const unsigned group = number / 4;
    const unsigned column = 2 * (number % 4);
    for (unsigned i = 0; i < 4; ++i) {
      a[group + 8 * (i % 2)][column + 8 * (i / 2)] = low_half(held.a[i]);
      a[group + 8 * (i % 2)][column + 8 * (i / 2) + 1] = high_half(held.a[i]);
      d[group + 8 * (i / 2)][column + i % 2] = held.d[i];
    }
    for (unsigned i = 0; i < 2; ++i) {
      b[column + 8 * i][group] = low_half(held.b[i]);
      b[column + 8 * i + 1][group] = high_half(held.b[i]);
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned column = 0; column < 8; ++column) {
        d[row][column] += a[row][k] * b[k][column];
      }
    }
  }
  for (unsigned number = 0; number < kWarpLanes; ++number) {
    std::array<float, 4> result{};
    for (unsigned i = 0; i < 4; ++i) {
      result[i] = d[number / 4 + 8 * (i / 2)][2 * (number % 4) + i % 2];
    }
    give(*lanes[number], result);
  }
}

void load_matrix(bool transposed, const Lanes& lanes) {
  std::uint16_t rows[32][8];
  for (unsigned number = 0; number < kWarpLanes; ++number) {
    std::memcpy(&rows[number][0], given_by<const void*>(*lanes[number]), 16);
  }
  for (unsigned number = 0; number < kWarpLanes; ++number) {
    const unsigned row = number / 4;
    const unsigned column = 2 * (number % 4);
    std::array<std::uint32_t, 4> held{};
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned low = transposed ? rows[8 * i + column][row] : rows[8 * i + row][column];
      const unsigned high =
          transposed ? rows[8 * i + column + 1][row] : rows[8 * i + row][column + 1];
      held[i] = low | high << 16U;
    }
    give(*lanes[number], held);
  }
}

void need_whole_warp() {
  if (running->warp->present != ~0U) {
    fault("a product or matrix load needs all 32 lanes of the warp");
  }
}

}  // namespace

void exchange(WarpCall call, unsigned mask, const Lanes& lanes) {
  switch (call) {
    case WarpCall::kSync:
      break;
    case WarpCall::kShuffle:
      shuffle(mask, lanes);
      break;
    case WarpCall::kBallot:
      ballot(mask, lanes);
      break;
    case WarpCall::kMatchAny:
      match_any(mask, lanes);
      break;
    case WarpCall::kProduct:
      product(lanes);
      break;
    case WarpCall::kLoadMatrix:
    case WarpCall::kLoadMatrixTransposed:
      load_matrix(call == WarpCall::kLoadMatrixTransposed, lanes);
      break;
    default:
      reduce(call, mask, lanes);
  }
}

void warp_sync(unsigned mask, int line) {
  meet(WarpCall::kSync, mask, "", 0, line);
}

std::uint64_t warp_shuffle(unsigned mask, std::uint64_t bits, unsigned source, int line) {
  const Shuffle given{bits, source};
  std::uint64_t result = 0;
  std::memcpy(&result, meet(WarpCall::kShuffle, mask, &given, sizeof given, line), sizeof result);
  return result;
}

unsigned warp_ballot(unsigned mask, bool predicate, int line) {
  const unsigned given = predicate ? 1 : 0;
  unsigned result = 0;
  std::memcpy(&result, meet(WarpCall::kBallot, mask, &given, sizeof given, line), sizeof result);
  return result;
}

unsigned warp_match_any(unsigned mask, std::uint64_t bits, int line) {
  unsigned result = 0;
  std::memcpy(&result, meet(WarpCall::kMatchAny, mask, &bits, sizeof bits, line), sizeof result);
  return result;
}

unsigned warp_reduce(WarpCall call, unsigned mask, unsigned value, int line) {
  unsigned result = 0;
  std::memcpy(&result, meet(call, mask, &value, sizeof value, line), sizeof result);
  return result;
}

void warp_product(float* d, const std::uint32_t* a, const std::uint32_t* b, int line) {
  need_whole_warp();
  Product given;
  std::memcpy(given.d.data(), d, sizeof given.d);
  std::memcpy(given.a.data(), a, sizeof given.a);
  std::memcpy(given.b.data(), b, sizeof given.b);
  std::memcpy(d, meet(WarpCall::kProduct, ~0U, &given, sizeof given, line), sizeof given.d);
}

void warp_load_matrix(std::uint32_t* m, const void* row, bool transposed, int line) {
  need_whole_warp();
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  const void* const code = __builtin_return_address(0);
  if (address - running->shared >= running->shared_bytes) {
    fault_at(code, "a matrix is loaded from {}, which is not in shared memory", row);
  }
  if (address % 16 != 0) {
    fault_at(code, "a row of a matrix is loaded from {}, which is not a multiple of 16", row);
  }
  check_thread_access(address, 16, Access::kRead, code);
  const WarpCall call = transposed ? WarpCall::kLoadMatrixTransposed : WarpCall::kLoadMatrix;
  std::memcpy(m, meet(call, ~0U, &row, sizeof row, line), 16);
}

}  // namespace lockstep::emulated
