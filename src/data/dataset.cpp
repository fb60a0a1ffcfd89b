#include "data/dataset.h"

#include <string>

#include "base/error.h"
#include "data/image_dataset.h"
#include "data/synthetic_dataset.h"
#include "data/token_dataset.h"

namespace lockstep {

long Dataset::count_targets(std::span<const long> samples) const {
  const long total = static_cast<long>(samples.size()) * info_.targets_per_sample;
  return info_.ignore_token < 0 ? total : total - count_ignored(samples);
}

void Dataset::check_share(long part, long parts) const {
  LOCKSTEP_CHECK(part >= 0 && part < parts);
}

namespace {

const std::string& named_path(const DataConfig& config, DataPart part) {
  const bool train = part == DataPart::kTrain;
  const std::string& path = train ? config.train : config.validation;
  if (path.empty()) {
    throw_request_error("data.{} is empty: name {}",
                        train ? "train" : "validation",
                        config.kind == "images" ? "a folder with the four IDX files"
                                                : "a token file or a glob of shards");
  }
  return path;
}

std::unique_ptr<Dataset> make_synthetic(const DatasetShape& shape,
                                        DataPart part,
                                        std::uint64_t seed,
                                        std::int64_t ignore_token) {
  SyntheticOptions options;
  options.num_samples = shape.num_synthetic_samples;
  options.first_sample = part == DataPart::kTrain ? 0 : shape.num_synthetic_samples;
  options.seed = seed;
  options.ignore_token = ignore_token;
  if (shape.seq_length > 0) {
    if (shape.vocab_size <= 0) {
      throw_request_error(
          "data.kind = synthetic needs model.vocab_size: there is no file to take "
          "it from");
    }
    return std::make_unique<SyntheticTokenDataset>(options, shape.seq_length, shape.vocab_size);
  }
  if (shape.features <= 0 || shape.num_classes <= 0) {
    throw_request_error(
        "data.kind = synthetic needs model.layer_sizes: there is no file to take "
        "the number of features and classes from");
  }
  return std::make_unique<SyntheticImageDataset>(options, shape.features, shape.num_classes);
}

}  // namespace

std::unique_ptr<Dataset> make_dataset(const DataConfig& config,
                                      DataPart part,
                                      const DatasetShape& shape,
                                      std::uint64_t seed) {
  if (config.kind == "synthetic") {
    return make_synthetic(shape, part, seed, config.ignore_token);
  }
  if (config.kind == "images") {
    if (part == DataPart::kValidation && config.validation.empty()) {
      return std::make_unique<ImageDataset>(
          named_path(config, DataPart::kTrain), "t10k", shape, config.ignore_token);
    }
    return std::make_unique<ImageDataset>(named_path(config, part),
                                          part == DataPart::kTrain ? "train" : "t10k",
                                          shape,
                                          config.ignore_token);
  }
  if (config.kind == "tokens") {
    return std::make_unique<TokenDataset>(find_shards(named_path(config, part)),
                                          shape.seq_length,
                                          shape.vocab_size,
                                          config.ignore_token);
  }
  throw_request_error("data.kind = '{}' is unknown, expected tokens, images or synthetic",
                      config.kind);
}

}  // namespace lockstep
