// IDX files of MNIST-like image sets: images, labels, gzip-compressed or not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// An IDX array of unsigned bytes, first dimension slowest.
struct IdxArray {
  std::vector<long> dims;
  std::vector<std::uint8_t> values;
};

/// Reads `path` whole; compression is recognised by the file's first bytes, not by its name.
/// Errors: RequestError naming the file when it is no IDX file of bytes with `num_dims` dimensions,
/// is truncated, has bytes after its end, or its gzip stream is damaged. The declared size is checked
/// against the file's size before anything is allocated.
IdxArray read_idx(const std::string& path, int num_dims);

/// One part of an image set: num_images x rows x columns pixels and num_images labels.
struct IdxImages {
  long num_images = 0;
  long rows = 0;
  long columns = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
};

/// Reads `<folder>/<part>-images-idx3-ubyte[.gz]` and `<folder>/<part>-labels-idx1-ubyte[.gz]`;
/// `part` is "train" or "t10k". Of a plain and a compressed file the plain one is taken.
/// Errors: as read_idx(); also a missing file, images without pixels, and unequal numbers of images
/// and labels.
IdxImages read_idx_images(const std::string& folder, std::string_view part);

}  // namespace lockstep
