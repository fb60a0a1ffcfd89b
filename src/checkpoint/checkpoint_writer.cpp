#include "checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/run_state_json.h"
#include "formats/atomic_file.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Removes what a crash while writing may have left.
void remove_unfinished(const fs::path& checkpoints) {
  for (const auto& entry : fs::directory_iterator(checkpoints)) {
    if (entry.path().filename().string().starts_with(".writing-")) {
      fs::remove_all(entry.path());
    }
  }
}

void point_latest_to(const fs::path& checkpoints, const std::string& name) {
  const fs::path link = checkpoints / ".latest-new";
  fs::remove(link);
  fs::create_directory_symlink(name, link);
  fs::rename(link, checkpoints / "latest");
}

std::size_t copied_bytes(const CheckpointConfig& config, const ModelView& model, bool is_copy) {
  const auto floats = static_cast<std::size_t>(model.table->flat_size()) * model.num_buffers();
  return config.async_write && !is_copy ? floats * sizeof(float) : 0;
}

std::size_t tensor_bytes(const ModelView& model) {
  return static_cast<std::size_t>(largest_tensor(*model.table)) * sizeof(float);
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::string run_directory,
                                   const CheckpointConfig& config,
                                   ModelView model,
                                   bool is_copy,
                                   Queue& queue)
    : directory_(std::move(run_directory) + "/checkpoints"),
      config_(config),
      model_(std::move(model)) {
  // A file-size limit then fails the write, which is reported, and does not kill the process.
  std::signal(SIGXFSZ, SIG_IGN);
  fs::create_directories(directory_);
  remove_unfinished(directory_);
  staging_ = queue.allocate_for_host(copied_bytes(config, model_, is_copy));
  tensor_ = queue.allocate_for_host(tensor_bytes(model_));
  source_ = model_;
  if (staging_.bytes() > 0) {
    const long elements = model_.table->flat_size();
    source_.weights = staging_.as<float>();
    for (std::size_t i = 0; i < source_.states.size(); ++i) {
      source_.states[i].data = staging_.as<float>() + static_cast<long>(i + 1) * elements;
    }
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::size_t CheckpointWriter::staging_bytes(const CheckpointConfig& config,
                                            const ModelView& model,
                                            bool is_copy) {
  return copied_bytes(config, model, is_copy) + tensor_bytes(model);
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

CheckpointWriter::File CheckpointWriter::write_text(const std::string& folder,
                                                    const std::string& name,
                                                    const std::string& text) {
  AtomicFile file(folder + "/" + name);
  file.append(text.data(), text.size());
  file.commit();
  return {name, text.size(), hash_of(text.data(), text.size())};
}

void CheckpointWriter::save(const RunState& state) {
  wait();
  if (!config_.async_write) {
    write(state);
    return;
  }
  if (staging_.bytes() > 0) {
    const std::vector<float*> from = model_.buffers();
    const std::vector<float*> to = source_.buffers();
    for (std::size_t i = 0; i < from.size(); ++i) {
      std::copy_n(from[i], model_.table->flat_size(), to[i]);
    }
  }
  thread_ = std::thread([this, state] {
    try {
      write(state);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

CheckpointWriter::File CheckpointWriter::write_tensors(const std::string& folder,
                                                       const std::string& name,
                                                       std::size_t first_buffer,
                                                       std::size_t end_buffer,
                                                       Hasher& values) const {
  std::vector<TensorDeclaration> declarations;
  for (std::size_t buffer = first_buffer; buffer < end_buffer; ++buffer) {
    const std::string prefix = buffer == 0 ? "" : source_.states[buffer - 1].name + ".";
    for (const Parameter& parameter : source_.table->parameters()) {
      declarations.push_back({prefix + parameter.name, DType::kF32, parameter.shape});
    }
  }
  const std::string path = folder + "/" + name;
  SafetensorsWriter writer(path, declarations);
  auto* const tensor = tensor_.as<float>();
  for (std::size_t buffer = first_buffer; buffer < end_buffer; ++buffer) {
    for (const Parameter& parameter : source_.table->parameters()) {
      source_.read(buffer, parameter, tensor);
      const auto count = static_cast<std::size_t>(parameter.num_elements());
      writer.write(std::as_bytes(std::span<const float>(tensor, count)));
      values.update(tensor, count * sizeof(float));
    }
  }
  const std::uint64_t hash = writer.close();
  return {name, fs::file_size(path), hash};
}

void CheckpointWriter::write(const RunState& state) {
  const std::string name = fmt::format("step-{:08d}", state.step);
  const fs::path folder = fs::path(directory_) / (".writing-" + name);
  const auto discard = [&folder] {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  };
  try {
    fs::remove_all(folder);
    fs::create_directory(folder);
    Hasher values;  // weights, then states: as hash_of_model
    const File files[] = {
        write_tensors(folder.string(), "model-00000.safetensors", 0, 1, values),
        write_tensors(
            folder.string(), "optimizer-00000.safetensors", 1, source_.num_buffers(), values),
        write_text(folder.string(), "state.json", to_json_text(state))};
    nlohmann::json complete;
    for (const File& file : files) {
      complete["files"][file.name] = {{"bytes", file.bytes}, {"xxh3", to_hex(file.hash)}};
    }
    write_text(folder.string(), "COMPLETE", complete.dump(2) + "\n");
    fsync_directory(folder.string());
    const fs::path final_folder = fs::path(directory_) / name;
    fs::remove_all(final_folder);  // a damaged one of the same step, passed over at the start
    fs::rename(folder, final_folder);
    point_latest_to(directory_, name);
    fsync_directory(directory_);
    written_hash_ = values.digest();
  } catch (const fs::filesystem_error& failure) {
    discard();
    throw_error("{}", failure.what());
  } catch (...) {
    discard();
    throw;
  }
  try {
    remove_old();
  } catch (const fs::filesystem_error& failure) {
    log::warn("an old checkpoint stays: {}", failure.what());  // the new one is there
  }
}

void CheckpointWriter::remove_old() const {
  std::vector<fs::path> complete;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    if (entry.is_directory() && !entry.is_symlink() &&
        entry.path().filename().string().starts_with("step-") &&
        fs::exists(entry.path() / "COMPLETE")) {
      complete.push_back(entry.path());
    }
  }
  std::sort(complete.rbegin(), complete.rend());
  const auto keep = static_cast<std::size_t>(std::max(1L, config_.keep));
  for (std::size_t i = keep; i < complete.size(); ++i) {
    fs::remove_all(complete[i]);
  }
}

}  // namespace lockstep
