// Safetensors files: named tensors behind a JSON header. No meaning of names.
//
// Layout: header length (uint64, little-endian), header (JSON, padded with spaces), tensor bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/hash.h"
#include "formats/atomic_file.h"
#include "formats/memory_map.h"

namespace lockstep {

/// A tensor of a mapped file, row-major. The bytes live as long as the reader that gave them, and
/// need not be aligned to the dtype (foreign files): copy them, do not cast their address.
struct StoredTensor {
  DType dtype = DType::kF32;
  std::vector<long> shape;
  std::span<const std::byte> bytes;
};

using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

/// One safetensors file, mapped for reading.
class SafetensorsFile {
 public:
  /// Opens and checks the whole header before any tensor is handed out. Refused (RequestError naming
  /// the file and tensor): truncated or oversized header, malformed JSON, doubled names, unknown
  /// dtypes, sizes that contradict shape and dtype or overflow, offsets outside the file, overlapping
  /// tensors. Gaps between tensors are accepted. Cost: the header; tensor bytes are not touched.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const StoredTensors& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

  /// Tensors whose dtype the format knows and this program does not (masks of BOOL and the like),
  /// name to dtype. They are checked as the others are, but left out of tensors().
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& unsupported() const {
    return unsupported_;
  }

  /// Starts reading a tensor's bytes in the background; it must be one of tensors().
  void advise_will_need(const StoredTensor& tensor) const;

  /// All bytes of the file, for a checksum.
  [[nodiscard]] std::span<const std::byte> file_bytes() const { return file_.bytes(); }

 private:
  MemoryMap file_;
  StoredTensors tensors_;
  std::map<std::string, std::string, std::less<>> unsupported_;
  std::map<std::string, std::string> metadata_;
};

/// Tensors of several files seen as one set.
class SafetensorsSet {
 public:
  /// `folder` holds model.safetensors, or model.safetensors.index.json with the files it names. A
  /// single file may be given in place of a folder. Errors: as SafetensorsFile; also an index that
  /// names a file outside the folder or a tensor that its file lacks, and a name in two files.
  explicit SafetensorsSet(const std::string& folder);

  /// Just these files.
  explicit SafetensorsSet(const std::vector<std::string>& paths);

  [[nodiscard]] const std::vector<SafetensorsFile>& files() const { return files_; }

  /// All names, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

  /// The tensor of that name, or nullptr.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;

  /// The tensor of that name. Errors: RequestError when it is missing or of an unsupported dtype.
  [[nodiscard]] const StoredTensor& at(std::string_view name) const;

 private:
  void add_file(const std::string& path);

  std::string source_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;  // also of unsupported tensors
};

/// What the writer must know of a tensor before its bytes.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<long> shape;
};

/// Bytes of a tensor of that shape and dtype. The product must not overflow (our own shapes).
std::uint64_t stored_bytes(DType dtype, const std::vector<long>& shape);

/// Writes one safetensors file, streaming; it appears under its name at close() and not before.
class SafetensorsWriter {
 public:
  /// Writes the header. Tensors lie in the order of `tensors`; names are unique and are not
  /// "__metadata__". Tensors stay aligned when larger dtypes are declared before smaller ones.
  /// Errors: Error when the file cannot be created or written.
  SafetensorsWriter(std::string path,
                    const std::vector<TensorDeclaration>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  /// Appends bytes of the tensors in their declared order; pieces may be cut anywhere. Unbuffered.
  /// Errors: Error when the disk refuses. More bytes than declared are a bug of the caller.
  void write(std::span<const std::byte> data);

  /// Bytes still to be written before close().
  [[nodiscard]] std::uint64_t remaining_bytes() const { return remaining_bytes_; }

  /// Flushes and renames once all declared bytes are there: on return the file is durable.
  /// Returns the XXH3 of the whole file, as hash_of() over its bytes. At most once.
  std::uint64_t close();

 private:
  AtomicFile file_;
  Hasher hasher_;
  std::uint64_t remaining_bytes_ = 0;
};

}  // namespace lockstep
