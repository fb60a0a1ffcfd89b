// Several safetensors files as one set of tensors.
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "formats/safetensors.h"
#include "formats/strict_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestIndex = 100'000'000;
constexpr int kIndexDepth = 8;  // its metadata may hold anything

/// Tensor name to file name, as the index says; file names are checked to be plain.
std::map<std::string, std::string> read_index(const std::string& path) {
  const MemoryMap file(path);
  const auto bytes = file.bytes();
  if (bytes.size() > kLargestIndex) {
    throw_request_error("{}: {} bytes, expected at most {}", path, bytes.size(), kLargestIndex);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const nlohmann::json index = parse_strict_json(text, path, kIndexDepth);
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    throw_request_error("{}: has no object 'weight_map'", path);
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : weight_map->items()) {
    const std::string file_name = value.is_string() ? value.get<std::string>() : std::string();
    if (file_name.empty() || file_name == "." || file_name == ".." ||
        file_name.find('/') != std::string::npos || file_name.find('\0') != std::string::npos) {
      throw_request_error("{}: tensor '{}': {} is not the name of a file in the same folder",
                          path,
                          name,
                          value.dump());
    }
    files.emplace(name, file_name);
  }
  return files;
}

}  // namespace

SafetensorsSet::SafetensorsSet(const std::string& folder) : source_(folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    add_file(folder);
    return;
  }
  const fs::path single = fs::path(folder) / "model.safetensors";
  if (fs::exists(single, ignored)) {
    add_file(single.string());
    return;
  }
  const fs::path index_path = fs::path(folder) / "model.safetensors.index.json";
  if (!fs::exists(index_path, ignored)) {
    throw_request_error("{}: neither model.safetensors nor model.safetensors.index.json is there",
                        folder);
  }
  const auto index = read_index(index_path.string());
  std::set<std::string> file_names;
  for (const auto& [name, file_name] : index) {
    file_names.insert(file_name);
  }
  for (const std::string& file_name : file_names) {
    add_file((fs::path(folder) / file_name).string());
  }
  for (const auto& [name, file_name] : index) {
    const auto found = file_of_.find(name);
    if (found == file_of_.end() || fs::path(files_[found->second].path()).filename() != file_name) {
      throw_request_error("{}: tensor '{}' is not in {}", index_path.string(), name, file_name);
    }
  }
}

SafetensorsSet::SafetensorsSet(const std::vector<std::string>& paths)
    : source_(fmt::format("{}", fmt::join(paths, ", "))) {
  for (const std::string& path : paths) {
    add_file(path);
  }
}

void SafetensorsSet::add_file(const std::string& path) {
  const SafetensorsFile& file = files_.emplace_back(path);
  const auto add_name = [&](const std::string& name) {
    const auto [place, is_new] = file_of_.emplace(name, files_.size() - 1);
    if (!is_new) {
      throw_request_error(
          "{}: tensor '{}' is also in {}", path, name, files_[place->second].path());
    }
  };
  for (const auto& [name, tensor] : file.tensors()) {
    add_name(name);
  }
  for (const auto& [name, dtype] : file.unsupported()) {
    add_name(name);
  }
}

std::vector<std::string> SafetensorsSet::names() const {
  std::vector<std::string> result;
  for (const auto& [name, index] : file_of_) {
    if (find(name) != nullptr) {
      result.push_back(name);
    }
  }
  return result;
}

const StoredTensor* SafetensorsSet::find(std::string_view name) const {
  const auto place = file_of_.find(name);
  if (place == file_of_.end()) {
    return nullptr;
  }
  const StoredTensors& tensors = files_[place->second].tensors();
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

const StoredTensor& SafetensorsSet::at(std::string_view name) const {
  if (const StoredTensor* tensor = find(name); tensor != nullptr) {
    return *tensor;
  }
  const auto place = file_of_.find(name);
  if (place == file_of_.end()) {
    throw_request_error("{}: there is no tensor '{}'", source_, name);
  }
  const SafetensorsFile& file = files_[place->second];
  throw_request_error("{}: tensor '{}': dtype {} is not supported",
                      file.path(),
                      name,
                      file.unsupported().find(name)->second);
}

}  // namespace lockstep
