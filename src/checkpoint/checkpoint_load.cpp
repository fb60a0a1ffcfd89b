#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "formats/memory_map.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string damage_of_file(const fs::path& path,
                           std::uint64_t size,
                           const std::string& hash,
                           bool checksums) {
  std::error_code failure;
  const auto found = fs::file_size(path, failure);
  if (failure) {
    return fmt::format("{} is missing", path.string());
  }
  if (found != size) {
    return fmt::format("{} has {} bytes, {} were written", path.string(), found, size);
  }
  if (checksums) {
    const MemoryMap map(path.string());
    if (to_hex(hash_of(map.bytes().data(), map.bytes().size())) != hash) {
      return fmt::format("{} has other bytes than were written (checksum)", path.string());
    }
  }
  return "";
}

std::vector<fs::path> newest_first(const fs::path& checkpoints) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(checkpoints, failure)) {
    if (entry.is_directory() && !entry.is_symlink() &&
        entry.path().filename().string().starts_with("step-")) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

// The tensor `name`, checked against the parameter's shape.
const StoredTensor& find_tensor(const SafetensorsFile& file,
                                const std::string& name,
                                const Parameter& parameter) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) {
    throw_request_error("{}: parameter {} is missing: the model is another one", file.path(), name);
  }
  const StoredTensor& tensor = found->second;
  if (tensor.shape != parameter.shape || tensor.dtype != DType::kF32) {
    throw_request_error("{}: {} is {} [{}], the model of this configuration needs f32 [{}]",
                        file.path(),
                        name,
                        name_of(tensor.dtype),
                        fmt::join(tensor.shape, " x "),
                        fmt::join(parameter.shape, " x "));
  }
  return tensor;
}

void check_finite(const std::string& path,
                  const std::string& name,
                  const std::vector<float>& values) {
  if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
    throw_request_error("{}: {} holds values that are not finite", path, name);
  }
}

}  // namespace

std::string find_damage(const std::string& checkpoint, bool checksums) {
  const fs::path folder(checkpoint);
  std::ifstream marker(folder / "COMPLETE");
  if (!marker) {
    return fmt::format("{} has no COMPLETE: it was not finished", checkpoint);
  }
  try {
    const auto json = nlohmann::json::parse(marker);
    const auto& files = json.at("files");
    for (const char* needed :
         {"model-00000.safetensors", "optimizer-00000.safetensors", "state.json"}) {
      if (!files.contains(needed)) {
        return fmt::format("{}/COMPLETE does not list {}", checkpoint, needed);
      }
    }
    for (const auto& [name, entry] : files.items()) {
      std::string damage = damage_of_file(folder / name,
                                          entry.at("bytes").get<std::uint64_t>(),
                                          entry.at("xxh3").get<std::string>(),
                                          checksums);
      if (!damage.empty()) {
        return damage;
      }
    }
  } catch (const nlohmann::json::exception& failure) {
    return fmt::format("{}/COMPLETE: {}", checkpoint, failure.what());
  } catch (const Error& failure) {
    return failure.what();
  }
  return "";
}

std::optional<CheckpointLocation> find_newest_checkpoint(const std::string& run_directory) {
  for (const fs::path& path : newest_first(fs::path(run_directory) / "checkpoints")) {
    const std::string damage = find_damage(path.string(), true);
    if (!damage.empty()) {
      log::warn("checkpoint passed over: {}", damage);
      continue;
    }
    return CheckpointLocation{path.string(), read_run_state(path.string())};
  }
  return std::nullopt;
}

CheckpointLocation locate_checkpoint(const std::string& source) {
  const fs::path path(source);
  if (!fs::is_directory(path)) {
    throw_request_error(
        "{}: not a folder; give a checkpoint (step-...), a run's folder or a "
        "Hugging Face folder",
        source);
  }
  if (fs::exists(path / "state.json")) {
    const std::string damage = find_damage(source, true);
    if (!damage.empty()) {
      throw_request_error("checkpoint is damaged: {}", damage);
    }
    return {source, read_run_state(source)};
  }
  const fs::path run = path.filename() == "checkpoints" ? path.parent_path() : path;
  if (auto found = find_newest_checkpoint(run.string())) {
    return *found;
  }
  throw_request_error("{}: no complete checkpoint in it (looked for checkpoints/step-*)", source);
}

void load_checkpoint(const std::string& checkpoint, const ModelView& model, bool weights_only) {
  const SafetensorsFile weights(checkpoint + "/model-00000.safetensors");
  struct Source {
    const SafetensorsFile* file;
    std::string prefix;
  };
  std::vector<Source> sources{{&weights, ""}};  // of each buffer
  std::optional<SafetensorsFile> optimizer;
  if (!weights_only) {
    optimizer.emplace(checkpoint + "/optimizer-00000.safetensors");
    for (const Optimizer::State& buffer : model.states) {
      sources.push_back({&*optimizer, buffer.name + "."});
    }
  }
  for (const Source& source : sources) {
    for (const Parameter& parameter : model.table->parameters()) {
      find_tensor(*source.file, source.prefix + parameter.name, parameter);
    }
  }
  if (weights.tensors().size() != model.table->parameters().size()) {
    throw_request_error("{} holds {} parameters, the model of this configuration has {}",
                        weights.path(),
                        weights.tensors().size(),
                        model.table->parameters().size());
  }
  std::vector<float> canonical;
  for (std::size_t buffer = 0; buffer < sources.size(); ++buffer) {
    const Source& source = sources[buffer];
    for (const Parameter& parameter : model.table->parameters()) {
      const std::string name = source.prefix + parameter.name;
      const StoredTensor& tensor = find_tensor(*source.file, name, parameter);
      canonical.resize(static_cast<std::size_t>(parameter.num_elements()));
      std::memcpy(canonical.data(), tensor.bytes.data(), tensor.bytes.size());
      check_finite(source.file->path(), name, canonical);
      model.write(buffer, parameter, canonical.data());
    }
  }
}

}  // namespace lockstep
