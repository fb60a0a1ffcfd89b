#include "data/merge_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr std::size_t kShortPiece = 48;

void merge_short(const MergeTable& table, std::vector<std::int32_t>& tokens) {
  std::array<MergeTable::Merge, kShortPiece> merges;  // merges[i]: of tokens i and i + 1
  std::size_t count = tokens.size();
  for (std::size_t i = 0; i + 1 < count; ++i) {
    merges[i] = table.find(tokens[i], tokens[i + 1]);
  }
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      best = merges[i].rank < merges[best].rank ? i : best;
    }
    if (merges[best].rank == MergeTable::kNoRank) {
      break;
    }
    tokens[best] = merges[best].merged;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    if (best + 1 < count) {
      merges[best] = table.find(tokens[best], tokens[best + 1]);
    }
    if (best > 0) {
      merges[best - 1] = table.find(tokens[best - 1], tokens[best]);
    }
  }
  tokens.resize(count);
}

// A doubly linked list over the places of the piece and a heap of candidates, (rank, place) in one
// number. A candidate that a neighbouring merge made stale is recognised when it comes up: the pair
// that stands there now has another rank, because a rank belongs to one pair only.
class LongPiece {
 public:
  LongPiece(const MergeTable& table, std::vector<std::int32_t>& tokens)
      : table_(table), tokens_(tokens), next_(tokens.size()), previous_(tokens.size()) {
    const auto count = static_cast<std::uint32_t>(tokens.size());
    std::vector<std::uint64_t> candidates;
    for (std::uint32_t i = 0; i < count; ++i) {
      next_[i] = i + 1 < count ? i + 1 : kNone;
      previous_[i] = i > 0 ? i - 1 : kNone;
      const std::uint32_t rank = rank_at(i);
      if (rank != MergeTable::kNoRank) {
        candidates.push_back(candidate(rank, i));
      }
    }
    heap_ = Heap(std::greater<>(), std::move(candidates));
  }

  void merge() {
    while (!heap_.empty()) {
      const std::uint64_t top = heap_.top();
      heap_.pop();
      const auto place = static_cast<std::uint32_t>(top);
      if (rank_at(place) == top >> 32U) {
        merge_at(place);
      }
    }
    std::size_t kept = 0;
    for (std::uint32_t place = 0; place != kNone; place = next_[place]) {
      tokens_[kept++] = tokens_[place];
    }
    tokens_.resize(kept);
  }

 private:
  using Heap = std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>>;
  static constexpr std::uint32_t kNone = 0xffffffffU;
  static constexpr std::int32_t kGone = -1;

  static std::uint64_t candidate(std::uint32_t rank, std::uint32_t place) {
    return std::uint64_t{rank} << 32U | place;
  }

  [[nodiscard]] std::uint32_t rank_at(std::uint32_t place) const {
    if (tokens_[place] == kGone || next_[place] == kNone) {
      return MergeTable::kNoRank;
    }
    return table_.find(tokens_[place], tokens_[next_[place]]).rank;
  }

  void merge_at(std::uint32_t place) {
    const std::uint32_t right = next_[place];
    tokens_[place] = table_.find(tokens_[place], tokens_[right]).merged;
    tokens_[right] = kGone;
    next_[place] = next_[right];
    if (next_[place] != kNone) {
      previous_[next_[place]] = place;
    }
    for (const std::uint32_t changed : {previous_[place], place}) {
      const std::uint32_t rank = changed == kNone ? MergeTable::kNoRank : rank_at(changed);
      if (rank != MergeTable::kNoRank) {
        heap_.push(candidate(rank, changed));
      }
    }
  }

  const MergeTable& table_;
  std::vector<std::int32_t>& tokens_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> previous_;
  Heap heap_;
};

}  // namespace

MergeTable::MergeTable(std::span<const TokenMerge> merges)
    : entries_(std::bit_ceil(2 * merges.size() + 2)), mask_(entries_.size() - 1) {
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::uint64_t key = key_of(merges[i].left, merges[i].right);
    std::size_t slot = slot_of(key);
    while (entries_[slot].key != kEmpty && entries_[slot].key != key) {
      slot = (slot + 1) & mask_;
    }
    entries_[slot] = {key, {static_cast<std::uint32_t>(i), merges[i].merged}};
  }
}

void merge_tokens(const MergeTable& table, std::vector<std::int32_t>& tokens) {
  if (tokens.size() <= kShortPiece) {
    merge_short(table, tokens);
    return;
  }
  if (tokens.size() >= 0xffffffffU) {
    throw_request_error("a piece of {} bytes that nothing splits, at most {} are supported",
                        tokens.size(),
                        0xfffffffeU);
  }
  LongPiece(table, tokens).merge();
}

}  // namespace lockstep
