#include "device/memory.h"

#include <utility>

namespace lockstep {

Memory::Memory(void* data, std::size_t bytes, Release release)
    : data_(data), bytes_(bytes), release_(std::move(release)) {}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      release_(std::move(other.release_)) {
  other.release_ = nullptr;
}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    release_ = std::move(other.release_);
    other.release_ = nullptr;
  }
  return *this;
}

Memory::~Memory() {
  reset();
}

void Memory::reset() {
  if (data_ != nullptr && release_) {
    release_(data_, bytes_);
  }
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace lockstep
