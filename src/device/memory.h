// Memory of a device, taken once at the start and never inside a step.
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep {

/// One allocation, freed on destruction. On the CPU it is zero-filled, page-aligned and asks for
/// huge pages. On the dry device it is an address range that must not be touched.
class Memory {
 public:
  using Release = std::function<void(void* data, std::size_t bytes)>;

  Memory() = default;
  /// Takes over `data`; `release` gives it back.
  Memory(void* data, std::size_t bytes, Release release);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void reset();

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_;
};

/// Every arena starts and every piece of it is aligned to this (a cache line, an AVX-512 vector).
inline constexpr std::size_t kMemoryAlignment = 64;

}  // namespace lockstep
