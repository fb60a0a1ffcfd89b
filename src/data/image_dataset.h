// Labelled images of an IDX folder, kept in memory as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"

namespace lockstep {

/// Features are pixels / 255, in the file's order. Memory: one byte a pixel.
class ImageDataset : public Dataset {
 public:
  /// `part` is "train" or "t10k". `shape.features` and `shape.num_classes`, where not 0, must fit the
  /// files; without the latter there are as many classes as the largest label says (the ignored one left out). Errors:
  /// RequestError naming the folder: malformed files, no image, other sizes, a label too large.
  ImageDataset(const std::string& folder,
               std::string_view part,
               const DatasetShape& shape,
               std::int64_t ignore_token);

  void read(std::span<const long> samples, SampleBuffers out) const override;
  [[nodiscard]] long largest_target(long part, long parts) const override;

 protected:
  [[nodiscard]] long count_ignored(std::span<const long> samples) const override;

 private:
  struct Images {
    DatasetInfo info;
    std::vector<std::uint8_t> pixels;
    std::vector<std::uint8_t> labels;
  };

  explicit ImageDataset(Images images);
  static Images load(const std::string& folder,
                     std::string_view part,
                     const DatasetShape& shape,
                     std::int64_t ignore_token);

  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace lockstep
