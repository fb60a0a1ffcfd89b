// The writing half of formats/safetensors.h.
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/integers.h"
#include "formats/safetensors.h"
#include "formats/safetensors_dtypes.h"

namespace lockstep {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

}  // namespace

std::uint64_t stored_bytes(DType dtype, const std::vector<long>& shape) {
  std::uint64_t bytes = size_of(dtype);
  for (const long dim : shape) {
    LOCKSTEP_CHECK(dim >= 0);
    LOCKSTEP_CHECK(!__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes));
  }
  return bytes;
}

SafetensorsWriter::SafetensorsWriter(std::string path,
                                     const std::vector<TensorDeclaration>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(std::move(path)) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  // ordered_json looks keys up one by one, so large headers are joined from their entries instead.
  std::string text = header.dump();
  text.pop_back();
  std::set<std::string_view> names;
  for (const TensorDeclaration& tensor : tensors) {
    LOCKSTEP_CHECK(tensor.name != "__metadata__");
    LOCKSTEP_CHECK(names.insert(tensor.name).second);
    const std::uint64_t begin = remaining_bytes_;
    remaining_bytes_ += stored_bytes(tensor.dtype, tensor.shape);
    nlohmann::ordered_json entry;
    entry["dtype"] = safetensors_name_of(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {begin, remaining_bytes_};
    text += text.size() > 1 ? "," : "";
    text += nlohmann::ordered_json(tensor.name).dump() + ":" + entry.dump();
  }
  text += "}";
  text.resize(round_up(text.size(), kHeaderAlignment), ' ');

  const std::uint64_t length = text.size();
  for (const auto& [data, bytes] : {std::pair<const void*, std::size_t>{&length, sizeof(length)},
                                    std::pair<const void*, std::size_t>{text.data(), length}}) {
    hasher_.update(data, bytes);
    file_.append(data, bytes);
  }
}

void SafetensorsWriter::write(std::span<const std::byte> data) {
  LOCKSTEP_CHECK(data.size() <= remaining_bytes_);
  hasher_.update(data.data(), data.size());
  file_.append(data.data(), data.size());
  remaining_bytes_ -= data.size();
}

std::uint64_t SafetensorsWriter::close() {
  LOCKSTEP_CHECK(remaining_bytes_ == 0);
  file_.commit();
  return hasher_.digest();
}

}  // namespace lockstep
