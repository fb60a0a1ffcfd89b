// Every target of a token file exactly once: what evaluating a file reads.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "formats/token_file.h"

namespace lockstep {

/// Windows of `context` tokens, `stride` targets apart. Window 0 trains all its targets; a later one
/// only those no earlier window had, its last `stride`, with the tokens before them as context. A
/// window that runs past the end of its shard is filled up with targets that do not count.
/// Each shard of n tokens gives n - 1 targets.
class WindowDataset : public Dataset {
 public:
  /// `stride` in 1 .. context. `vocab_size` bounds the ids. Errors: RequestError when a file is
  /// malformed, has fewer than two tokens, or for a stride out of range.
  WindowDataset(const std::vector<std::string>& shards,
                long context,
                long stride,
                long vocab_size,
                std::int64_t ignore_token);

  void read(std::span<const long> samples, SampleBuffers out) const override;
  void check_share(long part, long parts) const override;
  [[nodiscard]] long largest_target(long part, long parts) const override;

 protected:
  [[nodiscard]] long count_ignored(std::span<const long> samples) const override;

 private:
  struct Shards {
    std::vector<TokenFile> files;
    std::vector<long> first_windows;  ///< one more than files; the last is the number of windows
    DatasetInfo info;
  };

  explicit WindowDataset(Shards shards, long stride);
  static Shards open(const std::vector<std::string>& paths,
                     long context,
                     long stride,
                     long vocab_size,
                     std::int64_t ignore_token);

  Shards shards_;
  long stride_;
};

}  // namespace lockstep
