#include "parallel/buckets.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "comm/exchange.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

void cut(long begin, long end, long size, std::vector<IndexRange>& buckets) {
  while (end > begin) {
    const long first = std::max(begin, end - size);
    buckets.push_back({first, end});
    end = first;
  }
}

}  // namespace

std::vector<IndexRange> make_buckets(const ParameterTable& table,
                                     const std::vector<IndexRange>& chunks,
                                     long bucket_bytes,
                                     bool by_units) {
  const long elements = bucket_bytes / static_cast<long>(sizeof(float));
  const long size = std::max(1L, elements / kChunkElements) * kChunkElements;
  const long tied = table.tied_size();
  // Where no bucket may go across.
  std::set<long> borders{0, tied, table.gradient_size()};
  for (const IndexRange& chunk : chunks) {
    borders.insert(tied + chunk.begin);
  }
  for (const IndexRange& unit : table.units()) {
    if (by_units) {
      borders.insert(tied + unit.begin);
    }
  }
  for (const int apart : {table.tied_index(), table.shared_index()}) {
    if (apart >= 0) {
      borders.insert(tied + table[apart].offset);
      borders.insert(tied + table[apart].offset + table[apart].stored_elements());
    }
  }
  std::vector<IndexRange> buckets;
  for (auto end = borders.rbegin(); std::next(end) != borders.rend(); ++end) {
    cut(*std::next(end), *end, size, buckets);
  }
  return buckets;
}

std::vector<IndexRange> owned_ranges(const ParameterTable& table,
                                     const std::vector<IndexRange>& buckets,
                                     int num_ranks,
                                     int rank) {
  std::vector<IndexRange> ranges;
  for (const IndexRange& bucket : buckets) {
    if (bucket.begin < table.tied_size()) {
      continue;
    }
    const IndexRange slice = slice_of(bucket.size(), kChunkElements, num_ranks, rank);
    if (slice.size() > 0) {
      const long base = bucket.begin - table.tied_size();
      ranges.push_back({base + slice.begin, base + slice.end});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const IndexRange& a, const IndexRange& b) {
    return a.begin < b.begin;
  });
  return ranges;
}

}  // namespace lockstep
