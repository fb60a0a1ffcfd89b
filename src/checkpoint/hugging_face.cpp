#include "checkpoint/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "base/bfloat16.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/hash.h"
#include "base/integers.h"
#include "base/log.h"
#include "checkpoint/hugging_face_names.h"
#include "formats/atomic_file.h"
#include "formats/safetensors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A tensor of the model with where its values are.
struct Source {
  HuggingFaceTensor tensor;
  const StoredTensor* stored = nullptr;
};

// [rows x cols] to [cols x rows], in tiles that stay in the first-level cache.
void transpose(const float* from, long rows, long cols, float* to) {
  constexpr long kTile = 32;
  const long tiles_across = ceil_div(cols, kTile);
  for (long tile = 0; tile < ceil_div(rows, kTile) * tiles_across; ++tile) {
    const long row = tile / tiles_across * kTile;
    const long col = tile % tiles_across * kTile;
    for (long r = row; r < std::min(row + kTile, rows); ++r) {
      for (long c = col; c < std::min(col + kTile, cols); ++c) {
        to[c * rows + r] = from[r * cols + c];
      }
    }
  }
}

template <typename Half>
void decode_halves(std::span<const std::byte> bytes, std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Half half;  // foreign files do not align their tensors
    std::memcpy(&half.bits, bytes.data() + i * sizeof(half.bits), sizeof(half.bits));
    values[i] = to_float(half);
  }
}

// All values of the tensor, as f32.
void decode(const StoredTensor& stored, std::vector<float>& values) {
  values.resize(stored.bytes.size() / size_of(stored.dtype));
  if (values.empty()) {
    return;
  }
  switch (stored.dtype) {
    case DType::kF32:
      std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
      return;
    case DType::kBF16:
      decode_halves<BFloat16>(stored.bytes, values);
      return;
    case DType::kF16:
      decode_halves<Float16>(stored.bytes, values);
      return;
    default:
      LOCKSTEP_CHECK(false);
  }
}

// Finds the model's tensors in a folder and refuses what does not fit.
class SourceFinder {
 public:
  SourceFinder(const std::string& folder, const SafetensorsSet& set, const ModelConfig& config)
      : folder_(folder), set_(set), prefix_(hugging_face_prefix(config)) {}

  Source find(const HuggingFaceTensor& tensor) {
    std::string name = tensor.name;
    if (std::string bare = without_prefix(name); bare != name && holds(bare)) {
      if (holds(name)) {
        throw_request_error("{}: holds both '{}' and '{}'", folder_, name, bare);
      }
      name = std::move(bare);
    }
    used_.insert(name);
    Source source{tensor, &set_.at(name)};
    source.tensor.name = name;
    check_type(source);
    return source;
  }

  [[nodiscard]] bool holds(const std::string& name) const {
    const auto& files = set_.files();
    return std::any_of(files.begin(), files.end(), [&](const SafetensorsFile& file) {
      return file.tensors().contains(name) || file.unsupported().contains(name);
    });
  }

  // To be called once every tensor that the model needs was found.
  void refuse_others() const {
    for (const SafetensorsFile& file : set_.files()) {
      for (const auto& [name, tensor] : file.tensors()) {
        refuse_unknown(file, name);
      }
      for (const auto& [name, dtype] : file.unsupported()) {
        refuse_unknown(file, name);
      }
    }
  }

 private:
  [[nodiscard]] std::string without_prefix(const std::string& name) const {
    return name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
  }

  void check_type(const Source& source) const {
    const StoredTensor& stored = *source.stored;
    if (stored.dtype != DType::kF32 && stored.dtype != DType::kBF16 &&
        stored.dtype != DType::kF16) {
      throw_request_error("{}: tensor '{}' is of {}, supported are f32, bf16 and f16",
                          folder_,
                          source.tensor.name,
                          name_of(stored.dtype));
    }
    std::vector<long> shape = stored.shape;
    if (source.tensor.first_rows && !shape.empty()) {
      shape[0] = std::min(shape[0], source.tensor.shape[0]);
    }
    if (shape != source.tensor.shape) {
      throw_request_error("{}: tensor '{}' is [{}], the model needs [{}]",
                          folder_,
                          source.tensor.name,
                          fmt::join(stored.shape, " x "),
                          fmt::join(source.tensor.shape, " x "));
    }
  }

  void refuse_unknown(const SafetensorsFile& file, const std::string& name) const {
    if (!used_.contains(name) && !is_hugging_face_buffer(name)) {
      throw_request_error(
          "{}: tensor '{}' has no place in the model: it is another architecture, or has parts "
          "that are not supported",
          file.path(),
          name);
    }
  }

  const std::string& folder_;
  const SafetensorsSet& set_;
  std::string_view prefix_;
  std::set<std::string, std::less<>> used_;
};

// A head beside the tied embedding, as a second source of the embedding.
std::optional<Source> find_tied_head(SourceFinder& finder, const Source& embedding) {
  if (!finder.holds(std::string(kHuggingFaceHead))) {
    return std::nullopt;
  }
  HuggingFaceTensor tensor = embedding.tensor;
  tensor.name = kHuggingFaceHead;
  return finder.find(tensor);
}

void check_equal(const std::string& folder, const Source& head, const Source& embedding) {
  std::vector<float> head_values;
  std::vector<float> embedding_values;
  decode(*head.stored, head_values);
  decode(*embedding.stored, embedding_values);
  if (head_values != embedding_values) {
    throw_request_error(
        "{}: '{}' differs from '{}', but tie_word_embeddings says that they are one: set it to "
        "false in config.json to keep both",
        folder,
        head.tensor.name,
        embedding.tensor.name);
  }
  log::debug("{}: '{}' repeats the tied '{}'", folder, head.tensor.name, embedding.tensor.name);
}

void check_finite(const std::string& folder, const Source& source, std::vector<float>& values) {
  decode(*source.stored, values);
  const auto bad = std::find_if_not(
      values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  if (bad != values.end()) {
    throw_request_error("{}: tensor '{}' holds {} at element {}: weights must be finite",
                        folder,
                        source.tensor.name,
                        *bad,
                        bad - values.begin());
  }
}

// Puts a decoded tensor where it belongs in the user's view of its parameter.
void place(const HuggingFaceTensor& tensor,
           const Parameter& parameter,
           const std::vector<float>& values,
           float* canonical) {
  float* const to =
      canonical + tensor.first_row * (parameter.shape.size() == 2 ? parameter.cols() : 1);
  if (tensor.transposed) {
    transpose(values.data(), tensor.shape[0], tensor.shape[1], to);
  } else {
    std::copy_n(values.data(), tensor.num_elements(), to);
  }
}

std::string random_suffix() {
  std::random_device random;
  return to_hex(static_cast<std::uint64_t>(random()) << 32U | random());
}

// Absolute, links followed, so that a folder beside it can be renamed to it.
fs::path usable_destination(const std::string& destination) {
  if (destination.empty()) {
    throw_request_error("no destination was given: name a folder that does not exist yet");
  }
  fs::path path = fs::weakly_canonical(fs::absolute(destination));
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  if (fs::exists(path) && !(fs::is_directory(path) && fs::is_empty(path))) {
    throw_request_error("{}: exists and is not an empty folder: name another destination",
                        destination);
  }
  return path;
}

void write_weights(const ParameterTable& table,
                   const float* flat,
                   const std::vector<HuggingFaceTensor>& tensors,
                   const std::string& path) {
  std::vector<TensorDeclaration> declarations;
  declarations.reserve(tensors.size());
  for (const HuggingFaceTensor& tensor : tensors) {
    declarations.push_back({tensor.name, DType::kF32, tensor.shape});
  }
  SafetensorsWriter writer(path, declarations, {{"format", "pt"}});
  std::vector<float> canonical;
  std::vector<float> transposed;
  for (const HuggingFaceTensor& tensor : tensors) {
    const Parameter& parameter = table[tensor.parameter];
    if (tensor.first_row == 0) {
      canonical.resize(static_cast<std::size_t>(parameter.num_elements()));
      copy_to_canonical(parameter, flat, canonical.data());
    }
    const auto size = static_cast<std::size_t>(tensor.num_elements());
    std::span<const float> values(canonical);
    if (tensor.transposed) {
      transposed.resize(size);
      transpose(canonical.data(), tensor.shape[1], tensor.shape[0], transposed.data());
      values = transposed;
    } else {
      values = values.subspan(static_cast<std::size_t>(tensor.first_row * parameter.cols()), size);
    }
    writer.write(std::as_bytes(values));
  }
  writer.close();
}

// Sizes that a configuration may leave to be derived, as the table has them.
ModelConfig with_sizes_of(const ParameterTable& table, ModelConfig config) {
  for (const Parameter& parameter : table.parameters()) {
    if (parameter.name == "embedding.weight") {
      config.vocab_size = parameter.rows();
    } else if (parameter.name == "layers.0.ffn.down.weight") {
      config.ffn_hidden_size = parameter.cols();
    }
  }
  return config;
}

}  // namespace

void load_hugging_face(const std::string& folder,
                       const ModelConfig& config,
                       const ModelView& model) {
  const ParameterTable& table = *model.table;
  const SafetensorsSet set(folder);
  SourceFinder finder(folder, set, config);
  std::vector<Source> sources;
  for (const HuggingFaceTensor& tensor : hugging_face_tensors(config, table)) {
    sources.push_back(finder.find(tensor));
  }
  std::optional<Source> head;
  if (config.tie_embeddings) {
    LOCKSTEP_CHECK(sources.back().tensor.parameter == table.tied_index());
    head = find_tied_head(finder, sources.back());
  }
  finder.refuse_others();
  std::vector<float> values;
  for (const Source& source : sources) {
    check_finite(folder, source, values);
  }
  if (head.has_value()) {
    check_equal(folder, *head, sources.back());
  }

  std::vector<float> canonical;
  long filled = 0;
  for (const Source& source : sources) {
    const Parameter& parameter = table[source.tensor.parameter];
    canonical.resize(static_cast<std::size_t>(parameter.num_elements()));
    decode(*source.stored, values);
    place(source.tensor, parameter, values, canonical.data());
    filled += source.tensor.num_elements();
    if (filled == parameter.num_elements()) {
      model.write(0, parameter, canonical.data());
      filled = 0;
    }
  }
  LOCKSTEP_CHECK(filled == 0);
}

void export_hugging_face(const ParameterTable& table,
                         const float* flat,
                         const ModelConfig& config,
                         const std::string& destination) {
  const auto tensors = hugging_face_tensors(config, table);
  fs::path writing;
  try {
    const fs::path path = usable_destination(destination);
    fs::create_directories(path.parent_path());
    const fs::path folder =
        path.parent_path() / (path.filename().string() + ".writing-" + random_suffix());
    fs::create_directory(folder);
    writing = folder;
    write_weights(table, flat, tensors, (folder / "model.safetensors").string());
    const std::string text = hugging_face_config_text(with_sizes_of(table, config));
    AtomicFile file((folder / "config.json").string());
    file.append(text.data(), text.size());
    file.commit();
    fsync_directory(folder.string());
    fs::rename(folder, path);
    writing.clear();
    fsync_directory(path.parent_path().string());
  } catch (...) {
    std::error_code ignored;
    if (!writing.empty()) {
      fs::remove_all(writing, ignored);
    }
    try {
      throw;
    } catch (const fs::filesystem_error& failure) {
      throw_error("{}: cannot be exported to: {}", destination, failure.what());
    }
  }
}

}  // namespace lockstep
