// Byte-pair merging: which neighbouring tokens become one, and the loop that merges them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/tokenizer_files.h"

namespace lockstep {

/// The merges of a tokeniser by pair of tokens.
class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = 0xffffffffU;

  struct Merge {
    std::uint32_t rank = kNoRank;
    std::int32_t merged = 0;
  };

  /// Of a pair that stands twice the later rank counts, as in the reference implementations.
  explicit MergeTable(std::span<const TokenMerge> merges);

  /// The merge of the pair; its rank is kNoRank if there is none.
  [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const Entry& entry = entries_[slot];
      if (entry.key == key || entry.key == kEmpty) {
        return entry.merge;
      }
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  struct Entry {
    std::uint64_t key = kEmpty;
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 32U | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
    return ((key * 0x9e3779b97f4a7c15U) >> 32U) & mask_;
  }

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
};

/// Merges the tokens of one piece until no merge applies: always the merge of lowest rank, of equal
/// ones the leftmost. `tokens` shrinks in place. Cost: O(n log n); short pieces, which are nearly
/// all, take a quadratic loop that is faster below some dozens of tokens.
/// Errors: RequestError for a piece of 2^32 tokens or more.
void merge_tokens(const MergeTable& table, std::vector<std::int32_t>& tokens);

}  // namespace lockstep
