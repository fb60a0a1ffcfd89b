// Files of token ids: llm.c's format (read and written) and headerless uint16 (read).
//
// llm.c: 256 int32 (20240520; version 1 for uint16 or 7 for uint32; number of tokens; zeros), then
// the tokens. A headerless file is uint16 ids from its first byte on. Both are little-endian.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "formats/atomic_file.h"
#include "formats/memory_map.h"

namespace lockstep {

/// A token file, mapped for reading. Const functions may be called from several threads.
class TokenFile {
 public:
  /// Opens and checks the frame; ids are checked by check_ids(). A file that starts with llm.c's
  /// number has its header; every other file is taken as headerless. Errors: RequestError naming
  /// the file: not a regular file, empty, truncated, another version, a size that contradicts the
  /// header, or half a token at the end.
  explicit TokenFile(const std::string& path);

  [[nodiscard]] long num_tokens() const { return num_tokens_; }
  [[nodiscard]] const std::string& path() const { return file_.path(); }

  /// Bytes of a stored id: 2 or 4.
  [[nodiscard]] int bytes_per_token() const { return wide_ ? 4 : 2; }

  /// Copies the ids [position, position + count) to `out`. The range must lie in the file. Reads
  /// what is mapped: may wait for the disk; allocates nothing.
  void read(long position, long count, std::int32_t* out) const;

  /// How many of the ids [position, position + count) equal `id`. As read(), without the copy.
  [[nodiscard]] long count_of(std::int32_t id, long position, long count) const;

  /// Refuses the first id in [begin, end) that is not below `vocab_size`, with the file, its position
  /// and the id (RequestError). Call once before training, each rank on its share: one pass at
  /// the speed of memory or disk. `vocab_size` up to 2^31: larger ids do not fit int32.
  void check_ids(long vocab_size, long begin, long end) const;
  void check_ids(long vocab_size) const { check_ids(vocab_size, 0, num_tokens_); }

  /// The largest id in [begin, end); -1 when that is empty. Cost as check_ids().
  [[nodiscard]] long largest_id(long begin, long end) const;

 private:
  MemoryMap file_;
  const std::byte* tokens_ = nullptr;
  long num_tokens_ = 0;
  bool wide_ = false;
};

/// Writes llm.c's format, streaming; the file appears under its name at close() and not before.
class TokenFileWriter {
 public:
  /// `dtype`: kU16 for vocabularies of up to 65,536 ids, else kI32 (written as uint32).
  /// Errors: Error when the file cannot be created.
  TokenFileWriter(std::string path, DType dtype);

  /// Appends ids. Errors: RequestError for an id that is negative or does not fit the dtype (with
  /// the id, its position and what to do) and for more tokens than the header's int32 can count;
  /// Error when the disk refuses. After an error the file cannot be completed.
  void write(std::span<const std::int32_t> ids);

  /// Completes the header, flushes and renames: on return the file is durable. At most once.
  /// Errors: RequestError when nothing was written (such a file could not be read), else Error.
  void close();

  [[nodiscard]] long num_tokens() const { return num_tokens_; }

 private:
  void flush();

  AtomicFile file_;
  bool wide_;
  bool failed_ = false;
  long num_tokens_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace lockstep
