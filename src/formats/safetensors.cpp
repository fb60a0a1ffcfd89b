#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "formats/safetensors_dtypes.h"
#include "formats/strict_json.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
// The limit of the format's own implementation.
constexpr std::uint64_t kLargestHeader = 100'000'000;
constexpr int kHeaderDepth = 3;  // header, tensor, shape
constexpr const char* kMetadata = "__metadata__";

/// A tensor's place in the data behind the header.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string name;
};

std::string_view header_text(const MemoryMap& file) {
  const auto bytes = file.bytes();
  if (bytes.size() < kLengthBytes) {
    throw_request_error("{}: {} bytes are no safetensors file", file.path(), bytes.size());
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const std::uint64_t rest = bytes.size() - kLengthBytes;
  if (length > std::min(rest, kLargestHeader)) {
    throw_request_error(
        "{}: declares a header of {} bytes, but {}: truncated, or not a safetensors file",
        file.path(),
        length,
        length > rest ? fmt::format("only {} follow", rest)
                      : fmt::format("at most {} are allowed", kLargestHeader));
  }
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length};
}

const Json& member(const Json& object, const char* key, const std::string& what) {
  const auto found = object.find(key);
  if (found == object.end()) {
    throw_request_error("{}: '{}' is missing", what, key);
  }
  return *found;
}

std::vector<long> read_shape(const Json& value, const std::string& what) {
  if (!value.is_array()) {
    throw_request_error("{}: its shape is not a list", what);
  }
  std::vector<long> shape;
  for (const Json& dim : value) {
    // The JSON reader calls a whole number "unsigned" exactly when it is not negative and fits.
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > INT64_MAX) {
      throw_request_error("{}: its shape has {} in it, expected sizes", what, dim.dump());
    }
    shape.push_back(dim.get<long>());
  }
  return shape;
}

Extent read_extent(const Json& value, std::uint64_t data_bytes, const std::string& what) {
  if (!value.is_array() || value.size() != 2 || !value[0].is_number_unsigned() ||
      !value[1].is_number_unsigned()) {
    throw_request_error("{}: its data_offsets are not two sizes", what);
  }
  Extent extent{value[0].get<std::uint64_t>(), value[1].get<std::uint64_t>(), {}};
  if (extent.begin > extent.end || extent.end > data_bytes) {
    throw_request_error("{}: its bytes [{}, {}) do not lie in the {} bytes of data",
                        what,
                        extent.begin,
                        extent.end,
                        data_bytes);
  }
  return extent;
}

/// Whether `shape` elements of `element_bytes` are exactly `bytes`; an overflow is a no.
bool has_size(const std::vector<long>& shape, std::uint64_t element_bytes, std::uint64_t bytes) {
  // A zero anywhere makes the whole empty, however large the other sizes are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return bytes == 0;
  }
  std::uint64_t size = element_bytes;
  for (const long dim : shape) {
    if (__builtin_mul_overflow(size, static_cast<std::uint64_t>(dim), &size)) {
      return false;
    }
  }
  return size == bytes;
}

void refuse_overlap(std::vector<Extent> extents, const std::string& path) {
  std::erase_if(extents, [](const Extent& extent) { return extent.begin == extent.end; });
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin < b.begin;
  });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) {
      throw_request_error(
          "{}: the tensors '{}' and '{}' overlap", path, extents[i - 1].name, extents[i].name);
    }
  }
}

std::map<std::string, std::string> read_metadata(const Json& value, const std::string& path) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) {
    throw_request_error("{}: its {} is not an object", path, kMetadata);
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      throw_request_error("{}: its {} has '{}', which is not text", path, kMetadata, key);
    }
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string_view text = header_text(file_);
  const Json header = parse_strict_json(text, path + ": its header", kHeaderDepth);
  const auto data = file_.bytes().subspan(kLengthBytes + text.size());
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      metadata_ = read_metadata(entry, path);
      continue;
    }
    const std::string what = fmt::format("{}: tensor '{}'", path, name);
    if (!entry.is_object()) {
      throw_request_error("{}: its entry is not an object", what);
    }
    const Json& dtype_name = member(entry, "dtype", what);
    const SafetensorsDType* dtype =
        dtype_name.is_string() ? find_safetensors_dtype(dtype_name.get_ref<const std::string&>())
                               : nullptr;
    if (dtype == nullptr) {
      throw_request_error("{}: its dtype {} is unknown", what, dtype_name.dump());
    }
    std::vector<long> shape = read_shape(member(entry, "shape", what), what);
    Extent extent = read_extent(member(entry, "data_offsets", what), data.size(), what);
    const std::uint64_t bytes = extent.end - extent.begin;
    if (!has_size(shape, dtype->bytes, bytes)) {
      throw_request_error(
          "{}: {} bytes do not make {} [{}]", what, bytes, dtype->name, fmt::join(shape, " x "));
    }
    if (dtype->dtype.has_value()) {
      tensors_.emplace(
          name, StoredTensor{*dtype->dtype, std::move(shape), data.subspan(extent.begin, bytes)});
    } else {
      unsupported_.emplace(name, dtype->name);
    }
    extent.name = name;
    extents.push_back(std::move(extent));
  }
  refuse_overlap(std::move(extents), path);
}

void SafetensorsFile::advise_will_need(const StoredTensor& tensor) const {
  if (!tensor.bytes.empty()) {
    file_.advise_will_need(static_cast<std::size_t>(tensor.bytes.data() - file_.bytes().data()),
                           tensor.bytes.size());
  }
}

}  // namespace lockstep
