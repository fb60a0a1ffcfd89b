#include "formats/append_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr mode_t kMode = 0644;

[[noreturn]] void fail(const char* what, const std::string& path, int code) {
  throw_error("cannot {} {}: {}", what, path, std::generic_category().message(code));
}

/// Returns 0, or the error code of the write that failed.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0) {
      return EIO;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  open_file();
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void AppendFile::open_file() {
  const int opened = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  if (opened < 0) {
    fail("open", path_, errno);
  }
  struct stat status = {};
  if (::fstat(opened, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(opened);
    throw_error("cannot append to {}: it is not a regular file", path_);
  }
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  descriptor_ = opened;
  size_ = static_cast<std::size_t>(status.st_size);
}

void AppendFile::append(std::string_view bytes) {
  const int code = write_all(descriptor_, bytes);
  if (code != 0) {
    // Half a record would damage the ones after it; if even this fails, readers drop a torn end.
    [[maybe_unused]] const int cut = ::ftruncate(descriptor_, static_cast<off_t>(size_));
    fail("write to", path_, code);
  }
  size_ += bytes.size();
}

void AppendFile::truncate(std::size_t bytes) {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    fail("shorten", path_, errno);
  }
  size_ = bytes;
}

void AppendFile::replace(std::string_view content) {
  replace_file(path_, content);
  open_file();
}

void AppendFile::sync() {
  if (::fsync(descriptor_) != 0) {
    fail("sync", path_, errno);
  }
}

void replace_file(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  if (file < 0) {
    fail("create", temporary, errno);
  }
  int code = write_all(file, content);
  if (code == 0 && ::fsync(file) != 0) {
    code = errno;
  }
  ::close(file);
  if (code == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) {
    code = errno;
  }
  if (code != 0) {
    ::unlink(temporary.c_str());
    fail("write", path, code);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int directory =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {  // some file systems cannot sync a folder: the content is safe already
    ::fsync(directory);
    ::close(directory);
  }
}

}  // namespace lockstep
