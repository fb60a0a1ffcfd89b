// Hashes of bytes: checksums of files, equality of weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <xxhash.h>

namespace lockstep {

/// XXH3 (64 bits) of a stream of bytes. Not cryptographic.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
  void update(const void* data, std::size_t bytes) {
    XXH3_64bits_update(state_.get(), data, bytes);
  }
  [[nodiscard]] std::uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

inline std::uint64_t hash_of(const void* data, std::size_t bytes) {
  return XXH3_64bits(data, bytes);
}

/// 16 lower-case hexadecimal digits.
std::string to_hex(std::uint64_t value);

}  // namespace lockstep
