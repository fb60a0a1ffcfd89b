#include "formats/idx.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

#include <zlib.h>

#include "base/error.h"
#include "formats/memory_map.h"

namespace lockstep {
namespace {

constexpr int kUnsignedByte = 0x08;
// A deflate stream expands at most 1032 times (258 bytes for two bits).
constexpr std::uint64_t kLargestExpansion = 1032;

/// The uncompressed bytes of a file, front to back.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills `out` as far as there are bytes; returns how many.
  virtual std::size_t read(std::span<std::uint8_t> out) = 0;
  /// An upper bound of the number of uncompressed bytes in the file.
  [[nodiscard]] virtual std::uint64_t largest_size() const = 0;
};

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t read(std::span<std::uint8_t> out) override {
    const std::size_t count = std::min(out.size(), bytes_.size() - next_);
    if (count > 0) {
      std::memcpy(out.data(), bytes_.data() + next_, count);
    }
    next_ += count;
    return count;
  }
  [[nodiscard]] std::uint64_t largest_size() const override { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  std::size_t next_ = 0;
};

class GzipSource : public ByteSource {
 public:
  GzipSource(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) {
      throw_error("{}: zlib cannot start", path_);
    }
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::span<std::uint8_t> out) override {
    std::size_t filled = 0;
    while (filled < out.size() && !ended_) {
      feed();
      const std::size_t piece = std::min(out.size() - filled, kLargestPiece);
      stream_.next_out = out.data() + filled;
      stream_.avail_out = static_cast<uInt>(piece);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      filled += piece - stream_.avail_out;
      ended_ = status == Z_STREAM_END;
      if (status == Z_BUF_ERROR && next_ == bytes_.size()) {
        throw_request_error("{}: the gzip stream is truncated", path_);
      }
      if (status != Z_OK && status != Z_STREAM_END) {
        throw_request_error("{}: the gzip stream is damaged: {}",
                            path_,
                            stream_.msg != nullptr ? stream_.msg : "unexpected end");
      }
    }
    if (ended_ && (stream_.avail_in > 0 || next_ < bytes_.size())) {
      throw_request_error("{}: has bytes after the end of its gzip stream", path_);
    }
    return filled;
  }
  [[nodiscard]] std::uint64_t largest_size() const override {
    return bytes_.size() * kLargestExpansion;
  }

 private:
  static constexpr std::size_t kLargestPiece = std::size_t{1} << 30U;  // zlib counts in 32 bits

  void feed() {
    if (stream_.avail_in == 0 && next_ < bytes_.size()) {
      const std::size_t piece = std::min(bytes_.size() - next_, kLargestPiece);
      const auto* next = reinterpret_cast<const Bytef*>(bytes_.data() + next_);
      stream_.next_in = const_cast<Bytef*>(next);
      stream_.avail_in = static_cast<uInt>(piece);
      next_ += piece;
    }
  }

  std::string path_;
  std::span<const std::byte> bytes_;
  std::size_t next_ = 0;
  z_stream stream_{};
  bool ended_ = false;
};

std::unique_ptr<ByteSource> open_source(const MemoryMap& file) {
  const auto bytes = file.bytes();
  if (bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b}) {
    return std::make_unique<GzipSource>(file.path(), bytes);
  }
  return std::make_unique<PlainSource>(bytes);
}

long read_dim(ByteSource& source, const std::string& path) {
  std::array<std::uint8_t, 4> bytes{};
  if (source.read(bytes) != bytes.size()) {
    throw_request_error("{}: ends inside the IDX header", path);
  }
  return static_cast<long>(bytes[0]) << 24U | static_cast<long>(bytes[1]) << 16U |
         static_cast<long>(bytes[2]) << 8U | static_cast<long>(bytes[3]);
}

/// The plain file if it is there, else the compressed one.
std::string find_part(const std::string& folder, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(folder) / name;
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) {
    return plain.string();
  }
  std::string compressed = plain.string() + ".gz";
  if (!std::filesystem::exists(compressed, ignored)) {
    throw_request_error("{}: neither {} nor {}.gz is there", folder, name, name);
  }
  return compressed;
}

}  // namespace

IdxArray read_idx(const std::string& path, int num_dims) {
  const MemoryMap file(path);
  const auto source = open_source(file);

  std::array<std::uint8_t, 4> magic{};
  if (source->read(magic) != magic.size() || magic[0] != 0 || magic[1] != 0) {
    throw_request_error("{}: is not an IDX file (it must start with two zero bytes)", path);
  }
  if (magic[2] != kUnsignedByte) {
    throw_request_error("{}: holds elements of type {:#04x}, expected unsigned bytes ({:#04x})",
                        path,
                        magic[2],
                        kUnsignedByte);
  }
  if (magic[3] != num_dims) {
    throw_request_error("{}: has {} dimensions, expected {}", path, magic[3], num_dims);
  }

  IdxArray array;
  std::uint64_t size = 1;
  bool fits = true;
  for (int i = 0; i < num_dims; ++i) {
    array.dims.push_back(read_dim(*source, path));
    fits =
        fits && !__builtin_mul_overflow(size, static_cast<std::uint64_t>(array.dims.back()), &size);
  }
  if (!fits || size > source->largest_size()) {
    throw_request_error("{}: is truncated: its header declares {} elements, the file has {} bytes",
                        path,
                        fits ? std::to_string(size) : "more than 2^64",
                        file.bytes().size());
  }
  array.values.resize(size);
  const std::size_t found = source->read(array.values);
  if (found != size) {
    throw_request_error("{}: is truncated: {} elements, expected {}", path, found, size);
  }
  // Also makes a gzip stream reach its end, where its checksum is compared.
  std::array<std::uint8_t, 1> beyond{};
  if (source->read(beyond) != 0) {
    throw_request_error("{}: has bytes after its {} elements", path, size);
  }
  return array;
}

IdxImages read_idx_images(const std::string& folder, std::string_view part) {
  const std::string images_path = find_part(folder, std::string(part) + "-images-idx3-ubyte");
  const std::string labels_path = find_part(folder, std::string(part) + "-labels-idx1-ubyte");
  IdxArray images = read_idx(images_path, 3);
  IdxArray labels = read_idx(labels_path, 1);
  if (images.dims[0] != labels.dims[0]) {
    throw_request_error("{}: {} images, but {} has {} labels",
                        images_path,
                        images.dims[0],
                        labels_path,
                        labels.dims[0]);
  }
  if (images.dims[1] == 0 || images.dims[2] == 0) {
    throw_request_error(
        "{}: images of {} x {} pixels", images_path, images.dims[1], images.dims[2]);
  }
  return {images.dims[0],
          images.dims[1],
          images.dims[2],
          std::move(images.values),
          std::move(labels.values)};
}

}  // namespace lockstep
