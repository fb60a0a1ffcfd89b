// Writing files that are either complete or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

/// Makes the names in `directory` durable: call it after a file in it was created, renamed or
/// removed. Errors: Error naming the directory. Cost: one disk flush.
void fsync_directory(const std::string& directory);

/// A file that appears under its name only once it is complete: bytes go to a temporary name in the
/// same directory, and commit() flushes and renames. Destroyed before that, it leaves nothing.
/// The temporary name is unique, so that two writers of one path never mix their bytes.
/// Errors of every function: Error naming the file and the system's reason. A caller that must
/// survive a file-size limit ignores SIGXFSZ, which otherwise ends the process before the error.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Unbuffered: hand over large pieces.
  void append(const void* data, std::size_t bytes);

  /// Replaces bytes that were appended before (a header whose contents are known at the end).
  void overwrite(std::uint64_t offset, const void* data, std::size_t bytes);

  /// Flushes, renames and flushes the directory: on return the file is durable under its name.
  /// At most once; nothing may be written afterwards.
  void commit();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  void abandon() noexcept;

  std::string path_;
  std::string temporary_path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
