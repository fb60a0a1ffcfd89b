// What training reads: numbered samples of tokens or of images.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "data/data_config.h"

namespace lockstep {

enum class SampleKind : std::uint8_t { kTokens, kImages };

/// The target that is not trained, in the buffers of a Dataset.
inline constexpr std::int32_t kIgnoredTarget = -1;

/// Where n samples go, one after the other. `tokens` is used by kTokens, `features` by kImages.
struct SampleBuffers {
  std::int32_t* tokens = nullptr;   ///< [n, inputs_per_sample]
  float* features = nullptr;        ///< [n, inputs_per_sample]
  std::int32_t* targets = nullptr;  ///< [n, targets_per_sample]; kIgnoredTarget: not trained
};

/// The facts of a data set that do not change.
struct DatasetInfo {
  SampleKind kind = SampleKind::kTokens;
  long num_samples = 0;
  long inputs_per_sample = 0;   ///< tokens: sequence length; images: features (pixels)
  long targets_per_sample = 0;  ///< tokens: sequence length; images: 1
  long num_classes = 0;         ///< images: classes; tokens: vocabulary size, 0 where unknown
  std::int64_t ignore_token = -1;
};

/// A data set of at least one sample. All const functions are thread-safe; every rank opens the same
/// data set and reads the samples it needs.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  [[nodiscard]] const DatasetInfo& info() const { return info_; }
  [[nodiscard]] SampleKind kind() const { return info_.kind; }
  [[nodiscard]] long num_samples() const { return info_.num_samples; }
  [[nodiscard]] long inputs_per_sample() const { return info_.inputs_per_sample; }
  [[nodiscard]] long targets_per_sample() const { return info_.targets_per_sample; }
  [[nodiscard]] long num_classes() const { return info_.num_classes; }

  /// Writes inputs and targets of samples[0..n) to `out`. Numbers must be below num_samples(); they
  /// may repeat. Targets equal to the ignored token become kIgnoredTarget. Allocates nothing.
  virtual void read(std::span<const long> samples, SampleBuffers out) const = 0;

  /// Number of trained targets of these samples. Without an ignored token it is a product, else the
  /// targets are read. Allocates nothing.
  [[nodiscard]] long count_targets(std::span<const long> samples) const;

  /// Checks part `part` of `parts` of what opening the data set left unchecked: token ids, where the
  /// vocabulary is known. Call once before training, each rank with its own part. Errors:
  /// RequestError with file, position and id. Cost: one pass over the part.
  virtual void check_share(long part, long parts) const;

  /// The largest token id or label in part `part` of `parts`; -1 for an empty part. One pass.
  [[nodiscard]] virtual long largest_target(long part, long parts) const = 0;

 protected:
  explicit Dataset(const DatasetInfo& info) : info_(info) {}

  /// How many targets of these samples equal the ignored token; called only if there is one.
  [[nodiscard]] virtual long count_ignored(std::span<const long> samples) const = 0;

 private:
  DatasetInfo info_;
};

/// What the model expects of its data; 0: unknown, taken from the data.
struct DatasetShape {
  long seq_length = 0;   ///< tokens a sample; > 0 makes synthetic data tokens, else images
  long vocab_size = 0;   ///< ids must be below it
  long features = 0;     ///< pixels an image
  long num_classes = 0;  ///< labels must be below it
  long num_synthetic_samples = 10000;
};

enum class DataPart : std::uint8_t { kTrain, kValidation };

/// Opens the training or validation data that `config` names.
/// images: the train files of data.train; for validation the t10k files of data.validation, of
/// data.train if that is empty. tokens: data.train or data.validation. synthetic: needs no file;
/// validation has other values than training.
/// Errors: RequestError naming key, file and position: unknown kind, empty name, nothing matches,
/// malformed files, no whole sample, sizes that do not fit `shape`, a label that is no class.
std::unique_ptr<Dataset> make_dataset(const DataConfig& config,
                                      DataPart part,
                                      const DatasetShape& shape,
                                      std::uint64_t seed);

}  // namespace lockstep
