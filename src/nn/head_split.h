// How the heads of attention are cut into tensor blocks.
#pragma once

#include <algorithm>

#include "base/integers.h"

namespace lockstep {

/// Query heads and the key and value heads that they share, in `num_blocks` blocks. Blocks have whole
/// kv heads and their query heads, padded at the end, as long as there are enough. Where num_blocks is a
/// multiple of kv_heads, `sharers` neighbouring blocks share a kv head: each computes some columns of its
/// key and value, put together before attention (nn/shared_heads.h), and has some of its query heads,
/// both padded at the end of the sharers.
struct HeadSplit {
  long heads = 0;
  long kv_heads = 0;
  long head_dim = 0;
  int num_blocks = 1;

  /// Blocks that have parts of the same kv head.
  [[nodiscard]] int sharers() const {
    return num_blocks > kv_heads && num_blocks % kv_heads == 0
               ? static_cast<int>(num_blocks / kv_heads)
               : 1;
  }
  [[nodiscard]] bool shares() const { return sharers() > 1; }

  /// Runs that the query heads, and the columns of keys and of values, are cut by (SplitPart::groups).
  [[nodiscard]] long groups() const { return shares() ? kv_heads : 1; }
  /// kv heads that the attention of a block reads.
  [[nodiscard]] long kv_heads_per_block() const {
    return ceil_div(kv_heads, static_cast<long>(num_blocks));
  }
  /// Query heads that a block stores.
  [[nodiscard]] long heads_per_block() const {
    return shares() ? ceil_div(heads / kv_heads, static_cast<long>(sharers()))
                    : kv_heads_per_block() * (heads / kv_heads);
  }
  /// Columns of the keys (and of the values) that a block stores.
  [[nodiscard]] long key_columns_per_block() const {
    return shares() ? ceil_div(head_dim, static_cast<long>(sharers()))
                    : kv_heads_per_block() * head_dim;
  }

  /// The first query head of `block` of all, as numbered in the whole layer.
  [[nodiscard]] long first_head(int block) const {
    const long a_kv_head = heads / kv_heads;
    return shares()
               ? block / sharers() * a_kv_head + piece(a_kv_head, heads_per_block(), block).begin
               : block * heads_per_block();
  }
  /// Where blocks share: query heads that are there in `block` of all, the rest is padding.
  [[nodiscard]] long heads_in(int block) const {
    return piece(heads / kv_heads, heads_per_block(), block).size();
  }
  /// Where blocks share: the columns of its kv head that are there in `block` of all.
  [[nodiscard]] IndexRange key_columns_in(int block) const {
    return piece(head_dim, key_columns_per_block(), block);
  }
  /// Where blocks share: whether any of them is padded.
  [[nodiscard]] bool is_padded() const {
    return heads_per_block() * sharers() != heads / kv_heads ||
           key_columns_per_block() * sharers() != head_dim;
  }

  /// Whether a kv head's blocks and a rank's are parts of each other, for `ranks` ranks.
  [[nodiscard]] bool fits(int ranks) const {
    const int local = num_blocks / ranks;
    return local % sharers() == 0 || sharers() % local == 0;
  }
  /// Neighbouring ranks of the tensor group that share a kv head.
  [[nodiscard]] int ranks_sharing(int ranks) const {
    return std::max(1, sharers() / (num_blocks / ranks));
  }

 private:
  [[nodiscard]] IndexRange piece(long size, long part, int block) const {
    const long begin = std::min(size, block % sharers() * part);
    return {begin, std::min(size, begin + part)};
  }
};

}  // namespace lockstep
