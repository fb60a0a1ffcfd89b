// What the compiler calls before every access of instrumented code (-fsanitize=thread, without its runtime), and for
// misaligned ones (-fsanitize=alignment). Kernels and the host code of their files come here; only kernels are checked.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "emulated_device/access_checks.h"
#include "emulated_device/device_functions.h"
#include "emulated_device/fault.h"
#include "emulated_device/kernel_run.h"

namespace lockstep::emulated {
namespace {

// Most accesses are of the thread's own stack or of code that is no kernel.
inline void check(const void* address, std::size_t bytes, Access access, const void* code) {
  if (running == nullptr) {
    return;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  if (first - running->stack < kStackBytes) {
    return;
  }
  if (running->checks) {
    check_thread_access(first, bytes, access, code);
  }
}

struct SourceLocation {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
};

struct TypeDescriptor {
  std::uint16_t kind;
  std::uint16_t info;
  char name[1];
};

struct TypeMismatch {
  SourceLocation location;
  const TypeDescriptor* type;
  unsigned char log_alignment;
  unsigned char check_kind;
};

}  // namespace

std::uint64_t atomic_load(const void* address, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const void* const code = __builtin_return_address(0);
  if (first % bytes != 0) {
    fault_at(code, "an atomic operation on {} bytes at {}, which is misaligned", bytes, address);
  }
  check(address, bytes, Access::kAtomic, code);
  std::uint64_t bits = 0;
  std::memcpy(&bits, address, bytes);
  return bits;
}

void atomic_store(void* address, std::uint64_t bits, std::size_t bytes) {
  std::memcpy(address, &bits, bytes);
}

}  // namespace lockstep::emulated

using lockstep::emulated::Access;
using lockstep::emulated::check;

// Names are the compiler's.
// NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier)
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define LOCKSTEP_ACCESS_HOOK(name, bytes, access)               \
  void name(const void* address) {                              \
    check(address, bytes, access, __builtin_return_address(0)); \
  }
#define LOCKSTEP_ACCESS_HOOKS(bytes)                                        \
  LOCKSTEP_ACCESS_HOOK(__tsan_read##bytes, bytes, Access::kRead)            \
  LOCKSTEP_ACCESS_HOOK(__tsan_write##bytes, bytes, Access::kWrite)          \
  LOCKSTEP_ACCESS_HOOK(__tsan_volatile_read##bytes, bytes, Access::kRead)   \
  LOCKSTEP_ACCESS_HOOK(__tsan_volatile_write##bytes, bytes, Access::kWrite) \
  LOCKSTEP_ACCESS_HOOK(__tsan_unaligned_read##bytes, bytes, Access::kRead)  \
  LOCKSTEP_ACCESS_HOOK(__tsan_unaligned_write##bytes, bytes, Access::kWrite)
LOCKSTEP_ACCESS_HOOKS(1)
LOCKSTEP_ACCESS_HOOKS(2)
LOCKSTEP_ACCESS_HOOKS(4)
LOCKSTEP_ACCESS_HOOKS(8)
LOCKSTEP_ACCESS_HOOKS(16)

void __tsan_read_range(const void* address, std::size_t bytes) {
  check(address, bytes, Access::kRead, __builtin_return_address(0));
}
void __tsan_write_range(const void* address, std::size_t bytes) {
  check(address, bytes, Access::kWrite, __builtin_return_address(0));
}

// C++ atomics, as reference counts of host code have them. Other threads of the host may be at them: real atomics.
#define LOCKSTEP_ATOMIC_HOOKS(bits)                                                               \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* a, int) {    \
    check(const_cast<const std::uint##bits##_t*>(a),                                              \
          bits / 8,                                                                               \
          Access::kAtomic,                                                                        \
          __builtin_return_address(0));                                                           \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                               \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* a, std::uint##bits##_t v, int) { \
    check(const_cast<std::uint##bits##_t*>(a),                                                    \
          bits / 8,                                                                               \
          Access::kAtomic,                                                                        \
          __builtin_return_address(0));                                                           \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                     \
  }                                                                                               \
  LOCKSTEP_ATOMIC_CHANGE(bits, exchange, __atomic_exchange_n)                                     \
  LOCKSTEP_ATOMIC_CHANGE(bits, fetch_add, __atomic_fetch_add)                                     \
  LOCKSTEP_ATOMIC_CHANGE(bits, fetch_sub, __atomic_fetch_sub)                                     \
  LOCKSTEP_ATOMIC_CHANGE(bits, fetch_and, __atomic_fetch_and)                                     \
  LOCKSTEP_ATOMIC_CHANGE(bits, fetch_or, __atomic_fetch_or)                                       \
  LOCKSTEP_ATOMIC_CHANGE(bits, fetch_xor, __atomic_fetch_xor)                                     \
  LOCKSTEP_ATOMIC_COMPARE(bits, strong)                                                           \
  LOCKSTEP_ATOMIC_COMPARE(bits, weak)
#define LOCKSTEP_ATOMIC_CHANGE(bits, name, builtin)                  \
  std::uint##bits##_t __tsan_atomic##bits##_##name(                  \
      volatile std::uint##bits##_t* a, std::uint##bits##_t v, int) { \
    check(const_cast<std::uint##bits##_t*>(a),                       \
          bits / 8,                                                  \
          Access::kAtomic,                                           \
          __builtin_return_address(0));                              \
    return builtin(a, v, __ATOMIC_SEQ_CST);                          \
  }
#define LOCKSTEP_ATOMIC_COMPARE(bits, strength)                                                   \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile std::uint##bits##_t* a,          \
                                                        std::uint##bits##_t* expected,            \
                                                        std::uint##bits##_t v,                    \
                                                        int,                                      \
                                                        int) {                                    \
    check(const_cast<std::uint##bits##_t*>(a),                                                    \
          bits / 8,                                                                               \
          Access::kAtomic,                                                                        \
          __builtin_return_address(0));                                                           \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) \
               ? 1                                                                                \
               : 0;                                                                               \
  }
LOCKSTEP_ATOMIC_HOOKS(8)
LOCKSTEP_ATOMIC_HOOKS(16)
LOCKSTEP_ATOMIC_HOOKS(32)
LOCKSTEP_ATOMIC_HOOKS(64)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

void* lockstep_emulated_memcpy(void* to, const void* from, std::size_t bytes) {
  check(from, bytes, Access::kRead, __builtin_return_address(0));
  check(to, bytes, Access::kWrite, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* lockstep_emulated_memmove(void* to, const void* from, std::size_t bytes) {
  check(from, bytes, Access::kRead, __builtin_return_address(0));
  check(to, bytes, Access::kWrite, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* lockstep_emulated_memset(void* to, int value, std::size_t bytes) {
  check(to, bytes, Access::kWrite, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

void __ubsan_handle_type_mismatch_v1(const void* data, std::uintptr_t address) {
  const auto& mismatch = *static_cast<const lockstep::emulated::TypeMismatch*>(data);
  lockstep::emulated::fault_at(__builtin_return_address(0),
                               "{}:{}: access to {} at {:#x}, which is not a multiple of {}",
                               mismatch.location.file,
                               mismatch.location.line,
                               static_cast<const char*>(mismatch.type->name),
                               address,
                               1U << mismatch.log_alignment);
}
void __ubsan_handle_type_mismatch_v1_abort(const void* data, std::uintptr_t address) {
  __ubsan_handle_type_mismatch_v1(data, address);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming, bugprone-reserved-identifier)
