#include "formats/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {

std::string unique_suffix() {
  std::random_device random;
  return to_hex(static_cast<std::uint64_t>(random()) << 32U | random());
}

}  // namespace

void fsync_directory(const std::string& directory) {
  const std::string path = directory.empty() ? "." : directory;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool flushed = fd >= 0 && ::fsync(fd) == 0;
  const int reason = errno;
  if (fd >= 0) {
    ::close(fd);
  }
  if (!flushed) {
    throw_error("{}: cannot flush the folder: {}", path, std::strerror(reason));
  }
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_path_(path_ + ".partial-" + unique_suffix()) {
  fd_ = ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    throw_error("{}: cannot be created: {}", path_, std::strerror(errno));
  }
}

AtomicFile::~AtomicFile() {
  abandon();
}

void AtomicFile::append(const void* data, std::size_t bytes) {
  write_at(size_, data, bytes);
  size_ += bytes;
}

void AtomicFile::overwrite(std::uint64_t offset, const void* data, std::size_t bytes) {
  LOCKSTEP_CHECK(offset + bytes <= size_);
  write_at(offset, data, bytes);
}

void AtomicFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  LOCKSTEP_CHECK(fd_ >= 0);
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(fd_, next, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      throw_error("{}: cannot write {} bytes at offset {}: {}",
                  path_,
                  bytes,
                  offset,
                  written < 0 ? std::strerror(errno) : "nothing was accepted");
    }
    next += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  LOCKSTEP_CHECK(fd_ >= 0);
  if (::fsync(fd_) != 0) {
    throw_error("{}: cannot be flushed: {}", path_, std::strerror(errno));
  }
  // Some file systems report a failed write only here, so close before the name appears.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    throw_error("{}: cannot be closed: {}", path_, std::strerror(errno));
  }
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    throw_error("{}: cannot be renamed into place: {}", path_, std::strerror(errno));
  }
  temporary_path_.clear();
  fsync_directory(std::filesystem::path(path_).parent_path().string());
}

void AtomicFile::abandon() noexcept {
  if (fd_ >= 0) {
    ::close(fd_);
  }
  if (!temporary_path_.empty()) {
    ::unlink(temporary_path_.c_str());
  }
}

}  // namespace lockstep
