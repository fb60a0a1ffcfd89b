#include "formats/memory_map.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace lockstep {
namespace {

/// Closes the descriptor at the end of the scope: a mapping outlives it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MemoryMap::MemoryMap(const std::string& path) : path_(path) {
  // Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    throw_request_error("{}: cannot be opened: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    throw_request_error("{}: is {}, expected a regular file",
                        path,
                        S_ISDIR(status.st_mode) ? "a folder" : "a pipe or device");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) {
    return;
  }
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {  // NOLINT(performance-no-int-to-ptr): the macro is a cast
    throw_error("{}: cannot map {} bytes: {}", path, size_, std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(address);
}

MemoryMap::~MemoryMap() {
  unmap();
}

MemoryMap::MemoryMap(MemoryMap&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MemoryMap::unmap() noexcept {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

void MemoryMap::advise_will_need(std::size_t offset, std::size_t bytes) const {
  if (offset >= size_ || bytes == 0) {
    return;
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;
  const std::size_t end = offset + std::min(bytes, size_ - offset);
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
}

}  // namespace lockstep
