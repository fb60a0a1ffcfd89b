// Files that grow by whole records, and files that are replaced as a whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// A file that only grows, written by one process. What append() returned from is in the kernel: it
/// survives the end of the process, and a crash of the machine after sync().
class AppendFile {
 public:
  /// Opens `path`, creating it (never its folder). Throws Error with the path and the reason.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Writes all bytes at the end, or none: when the disk is full, what was written of the record is
  /// cut off again before Error is thrown. Cost: one system call, no allocation.
  void append(std::string_view bytes);

  /// Keeps the first `bytes` bytes.
  void truncate(std::size_t bytes);

  /// Replaces the content: see replace_file(). Later appends go to the new file.
  void replace(std::string_view content);

  /// Returns once everything is on the disk.
  void sync();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  void open_file();

  std::string path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

/// Writes `content` to `path` so that a reader, or a crash at any time, sees the old file or the
/// complete new one: a temporary file beside it, fsync, rename. Throws Error; the temporary file is
/// then gone.
void replace_file(const std::string& path, std::string_view content);

}  // namespace lockstep
