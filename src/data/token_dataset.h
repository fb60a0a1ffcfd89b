// Samples of consecutive tokens, cut from shards.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "formats/token_file.h"

namespace lockstep {

/// The token files that `pattern` names, in byte order of their names: the file itself if there is
/// one of exactly that name, else all that match it as a glob. Errors: RequestError for none.
std::vector<std::string> find_shards(const std::string& pattern);

/// Sample i of a shard is its tokens [i*T, i*T + T]: T inputs, and T targets one later. A shard of n
/// tokens has floor((n - 1) / T) samples; what is left over at its end is not used. Shards that are
/// too short for a sample are passed over.
class TokenDataset : public Dataset {
 public:
  /// `seq_length` T > 0; `vocab_size` 0: unknown. Errors: RequestError when a file is malformed or
  /// no shard has a sample.
  TokenDataset(const std::vector<std::string>& shards,
               long seq_length,
               long vocab_size,
               std::int64_t ignore_token);

  void read(std::span<const long> samples, SampleBuffers out) const override;

  /// With an unknown vocabulary, still refuses ids that do not fit int32.
  void check_share(long part, long parts) const override;
  [[nodiscard]] long largest_target(long part, long parts) const override;

 protected:
  [[nodiscard]] long count_ignored(std::span<const long> samples) const override;

 private:
  struct Shards {
    std::vector<TokenFile> files;
    std::vector<long> first_samples;  // one more than files; the last is the number of samples
    long num_tokens = 0;
  };
  /// Where a sample starts.
  struct Place {
    const TokenFile* file;
    long position;
  };

  TokenDataset(Shards shards, const DatasetInfo& info);
  static Shards open_shards(const std::vector<std::string>& paths, long seq_length);
  [[nodiscard]] Place place_of(long sample) const;

  /// Calls visit(file, begin, end) for the tokens of a share, counted over all shards.
  template <typename Visit>
  void visit_share(long part, long parts, Visit visit) const;

  Shards shards_;
};

}  // namespace lockstep
