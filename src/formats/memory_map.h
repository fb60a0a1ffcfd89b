// A read-only view of a file's bytes through the page cache.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep {

/// A regular file, mapped for reading for as long as the object lives. Movable, not copyable; the
/// spans it hands out stay valid when it is moved. Another process that shortens the file while it
/// is mapped makes a later access fail with SIGBUS: input files must not change under a run.
class MemoryMap {
 public:
  /// Maps the whole of `path`; an empty file gives an empty span.
  /// Errors: RequestError naming the file when it cannot be opened or is not a regular file
  /// (directory, pipe, device); Error when the system refuses the mapping.
  explicit MemoryMap(const std::string& path);
  ~MemoryMap();
  MemoryMap(MemoryMap&& other) noexcept;
  MemoryMap& operator=(MemoryMap&& other) noexcept;
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Asks the system to start reading [offset, offset + bytes) in the background. A hint: the part
  /// beyond the file is ignored, and so is a system that cannot. Returns at once; thread-safe.
  void advise_will_need(std::size_t offset, std::size_t bytes) const;

 private:
  void unmap() noexcept;

  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
