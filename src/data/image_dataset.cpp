#include "data/image_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/integers.h"
#include "formats/idx.h"

namespace lockstep {

ImageDataset::ImageDataset(const std::string& folder,
                           std::string_view part,
                           const DatasetShape& shape,
                           std::int64_t ignore_token)
    : ImageDataset(load(folder, part, shape, ignore_token)) {}

ImageDataset::ImageDataset(Images images)
    : Dataset(images.info), pixels_(std::move(images.pixels)), labels_(std::move(images.labels)) {}

ImageDataset::Images ImageDataset::load(const std::string& folder,
                                        std::string_view part,
                                        const DatasetShape& shape,
                                        std::int64_t ignore_token) {
  IdxImages files = read_idx_images(folder, part);
  if (files.num_images == 0) {
    throw_request_error("{}: the {} files hold no image", folder, part);
  }
  const long features = files.rows * files.columns;
  if (shape.features > 0 && features != shape.features) {
    throw_request_error("{}: its {} images have {} x {} = {} pixels, the model takes {}",
                        folder,
                        part,
                        files.rows,
                        files.columns,
                        features,
                        shape.features);
  }
  long classes = shape.num_classes;
  for (std::size_t i = 0; i < files.labels.size(); ++i) {
    const long label = files.labels[i];
    if (label == ignore_token) {
      continue;
    }
    if (shape.num_classes > 0 && label >= shape.num_classes) {
      throw_request_error("{}: {} label {} at position {} is not below the number of classes {}",
                          folder,
                          part,
                          label,
                          i,
                          shape.num_classes);
    }
    classes = std::max(classes, label + 1);
  }
  return {{SampleKind::kImages, files.num_images, features, 1, classes, ignore_token},
          std::move(files.pixels),
          std::move(files.labels)};
}

void ImageDataset::read(std::span<const long> samples, SampleBuffers out) const {
  const long features = inputs_per_sample();
  float* target = out.features;
  std::int32_t* label = out.targets;
  for (const long sample : samples) {
    LOCKSTEP_CHECK(sample >= 0 && sample < num_samples());
    const std::uint8_t* pixels = pixels_.data() + sample * features;
    for (long i = 0; i < features; ++i) {
      target[i] = static_cast<float>(pixels[i]) / 255.0F;
    }
    const std::int32_t value = labels_[static_cast<std::size_t>(sample)];
    *label++ = value == info().ignore_token ? kIgnoredTarget : value;
    target += features;
  }
}

long ImageDataset::largest_target(long part, long parts) const {
  LOCKSTEP_CHECK(part >= 0 && part < parts);
  const IndexRange share = part_of(num_samples(), parts, part);
  const auto largest = std::max_element(labels_.begin() + share.begin, labels_.begin() + share.end);
  return share.size() == 0 ? -1 : *largest;
}

long ImageDataset::count_ignored(std::span<const long> samples) const {
  return std::count_if(samples.begin(), samples.end(), [this](long sample) {
    return labels_[static_cast<std::size_t>(sample)] == info().ignore_token;
  });
}

}  // namespace lockstep
