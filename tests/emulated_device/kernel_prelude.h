// Included before every .cu file that g++ compiles for the emulated device: NVIDIA's own headers, and the functions and
// variables that only nvcc would know. Names are CUDA's.
#pragma once
#pragma GCC system_header

// A large memcpy or memset within a kernel is a call, which no check would see; so it gets another name.
namespace std {
using size_t = decltype(sizeof(0));
}
extern "C" void* memcpy(void*, const void*, std::size_t) noexcept
    __asm__("lockstep_emulated_memcpy");
extern "C" void* memmove(void*, const void*, std::size_t) noexcept
    __asm__("lockstep_emulated_memmove");
extern "C" void* memset(void*, int, std::size_t) noexcept __asm__("lockstep_emulated_memset");

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "emulated_device/device_functions.h"

#undef __shared__
// Blocks take turns on one processor: static shared memory would be one variable for all of them.
#define __shared__ static_shared_memory_is_not_emulated_use_LOCKSTEP_SHARED_MEMORY
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __constant__
#define __constant__ __attribute__((section("lockstep_emulated_constant")))

#define threadIdx (::lockstep::emulated::thread_index())
#define blockIdx (::lockstep::emulated::block_index())
#define blockDim (::lockstep::emulated::block_size())
#define gridDim (::lockstep::emulated::grid_size())
inline constexpr int warpSize = 32;

namespace lockstep::emulated {

template <typename T>
std::uint64_t bits_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <typename T>
T from_bits(std::uint64_t bits) {
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

template <typename T, typename Change>
T change_atomically(T* address, Change change) {
  const T before = from_bits<T>(atomic_load(address, sizeof(T)));
  atomic_store(address, bits_of<T>(change(before)), sizeof(T));
  return before;
}

// The lanes of the part of `width` lanes that a lane is in: its first.
inline unsigned first_of(int width) {
  return lane() & ~(static_cast<unsigned>(width) - 1);
}

}  // namespace lockstep::emulated

// Barriers.
inline void __syncthreads(int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  block_barrier(BarrierReduction::kNone, false, line);
}
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  return block_barrier(BarrierReduction::kCount, predicate != 0, line);
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  return block_barrier(BarrierReduction::kAnd, predicate != 0, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  return block_barrier(BarrierReduction::kOr, predicate != 0, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffU, int line = __builtin_LINE()) {
  lockstep::emulated::warp_sync(mask, line);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// Lanes of a warp.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  const unsigned from = first_of(width) + (static_cast<unsigned>(source) & (width - 1U));
  return from_bits<T>(warp_shuffle(mask, bits_of(value), from, line));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  const unsigned from = lane() ^ static_cast<unsigned>(lanes);
  const bool inside = from < first_of(width) + static_cast<unsigned>(width);
  return from_bits<T>(warp_shuffle(mask, bits_of(value), inside ? from : lane(), line));
}
template <typename T>
T __shfl_up_sync(
    unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  const bool inside = lane() - first_of(width) >= delta;
  return from_bits<T>(warp_shuffle(mask, bits_of(value), inside ? lane() - delta : lane(), line));
}
template <typename T>
T __shfl_down_sync(
    unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  const bool inside = lane() + delta < first_of(width) + static_cast<unsigned>(width);
  return from_bits<T>(warp_shuffle(mask, bits_of(value), inside ? lane() + delta : lane(), line));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return lockstep::emulated::warp_ballot(mask, predicate != 0, line);
}
inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return lockstep::emulated::warp_ballot(mask, predicate != 0, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  return lockstep::emulated::warp_ballot(mask, predicate == 0, line) == 0;
}
inline unsigned __activemask() {
  return lockstep::emulated::active_mask();
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  return lockstep::emulated::warp_match_any(mask, lockstep::emulated::bits_of(value), line);
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  return static_cast<T>(warp_reduce(WarpCall::kAdd, mask, static_cast<unsigned>(value), line));
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  const WarpCall call = std::is_signed_v<T> ? WarpCall::kMinSigned : WarpCall::kMin;
  return static_cast<T>(warp_reduce(call, mask, static_cast<unsigned>(value), line));
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value, int line = __builtin_LINE()) {
  using namespace lockstep::emulated;
  const WarpCall call = std::is_signed_v<T> ? WarpCall::kMaxSigned : WarpCall::kMax;
  return static_cast<T>(warp_reduce(call, mask, static_cast<unsigned>(value), line));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return lockstep::emulated::warp_reduce(lockstep::emulated::WarpCall::kAnd, mask, value, line);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return lockstep::emulated::warp_reduce(lockstep::emulated::WarpCall::kOr, mask, value, line);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, int line = __builtin_LINE()) {
  return lockstep::emulated::warp_reduce(lockstep::emulated::WarpCall::kXor, mask, value, line);
}

// Atomic operations.
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(address, [=](T before) { return before + value; });
}
template <typename T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(address, [=](T before) { return before - value; });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(
      address, [=](T before) { return value < before ? value : before; });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(
      address, [=](T before) { return before < value ? value : before; });
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(address, [=](T before) { return before & value; });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(address, [=](T before) { return before | value; });
}
template <typename T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(address, [=](T before) { return before ^ value; });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(address, [=](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return lockstep::emulated::change_atomically(
      address, [=](T before) { return before == expected ? value : before; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return lockstep::emulated::change_atomically(
      address, [=](unsigned before) { return before >= limit ? 0 : before + 1; });
}

// Loads and stores with hints on caches.
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldca(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldlu(const T* address) {
  return *address;
}
template <typename T>
void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
void __stwb(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
void __stwt(T* address, std::type_identity_t<T> value) {
  *address = value;
}

// Reinterpretation and conversion.
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
inline int __float2int_rd(float x) {
  return static_cast<int>(std::floor(x));
}
inline int __float2int_ru(float x) {
  return static_cast<int>(std::ceil(x));
}
inline unsigned __float2uint_rn(float x) {
  return static_cast<unsigned>(std::nearbyint(x));
}
inline unsigned __float2uint_rz(float x) {
  return static_cast<unsigned>(x);
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
  return static_cast<float>(x);
}
inline float __ull2float_rn(unsigned long long x) {
  return static_cast<float>(x);
}
inline double __int2double_rn(int x) {
  return x;
}
inline double __ll2double_rn(long long x) {
  return static_cast<double>(x);
}
inline float __double2float_rn(double x) {
  return static_cast<float>(x);
}
inline int __double2int_rn(double x) {
  return static_cast<int>(std::nearbyint(x));
}

// Rounded arithmetic.
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float __frcp_rn(float a) {
  return 1.0F / a;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float __frsqrt_rn(float a) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a)));
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dsub_rn(double a, double b) {
  return a - b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline double __dsqrt_rn(double a) {
  return std::sqrt(a);
}
inline double __fma_rn(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

// Approximations: here the exact function.
inline float __expf(float x) {
  return std::exp(x);
}
inline float __exp10f(float x) {
  return std::pow(10.0F, x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __log2f(float x) {
  return std::log2(x);
}
inline float __log10f(float x) {
  return std::log10(x);
}
inline float __powf(float x, float y) {
  return std::pow(x, y);
}
inline float __sinf(float x) {
  return std::sin(x);
}
inline float __cosf(float x) {
  return std::cos(x);
}
inline float __tanf(float x) {
  return std::tan(x);
}
inline float __tanhf(float x) {
  return std::tanh(x);
}
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __saturatef(float x) {
  return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F;
}

// Minimum and maximum in the global namespace, of the types that CUDA has them for.
inline int min(int a, int b) {
  return b < a ? b : a;
}
inline int max(int a, int b) {
  return a < b ? b : a;
}
inline unsigned min(unsigned a, unsigned b) {
  return b < a ? b : a;
}
inline unsigned max(unsigned a, unsigned b) {
  return a < b ? b : a;
}
inline long min(long a, long b) {
  return b < a ? b : a;
}
inline long max(long a, long b) {
  return a < b ? b : a;
}
inline unsigned long min(unsigned long a, unsigned long b) {
  return b < a ? b : a;
}
inline unsigned long max(unsigned long a, unsigned long b) {
  return a < b ? b : a;
}
inline long long min(long long a, long long b) {
  return b < a ? b : a;
}
inline long long max(long long a, long long b) {
  return a < b ? b : a;
}
inline unsigned long long min(unsigned long long a, unsigned long long b) {
  return b < a ? b : a;
}
inline unsigned long long max(unsigned long long a, unsigned long long b) {
  return a < b ? b : a;
}
inline float min(float a, float b) {
  return __builtin_fminf(a, b);
}
inline float max(float a, float b) {
  return __builtin_fmaxf(a, b);
}
inline double min(double a, double b) {
  return __builtin_fmin(a, b);
}
inline double max(double a, double b) {
  return __builtin_fmax(a, b);
}

inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
inline float exp10f(float x) {
  return std::pow(10.0F, x);
}
inline float sinpif(float x) {
  return static_cast<float>(std::sin(3.14159265358979323846 * x));
}
inline float cospif(float x) {
  return static_cast<float>(std::cos(3.14159265358979323846 * x));
}

// Integers.
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>(static_cast<long long>(a) * b >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) {
    reversed |= (x >> i & 1U) << (31 - i);
  }
  return reversed;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(
      (static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> 4 * i & 15U;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (pick & 7U)) & 255U;
    if ((pick & 8U) != 0) {
      byte = (byte & 128U) != 0 ? 255U : 0U;
    }
    result |= byte << 8 * i;
  }
  return result;
}

[[noreturn]] inline void __trap() {
  lockstep::emulated::kernel_trap("__trap()");
}
inline long long clock64() {
  return lockstep::emulated::clock_ticks();
}
