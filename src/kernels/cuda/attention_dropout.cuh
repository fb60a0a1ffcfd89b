// Masks of dropout as the attention kernels spread scores over their lanes.
#pragma once

#include <array>
#include <cstdint>

#include "base/dropout_mask.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace lockstep {

/// The mask of one head of one sequence: its queries are tokens, its keys elements.
struct HeadMask {
  DropoutMask mask;
  long sample = 0;

  HeadMask() = default;
  __device__ __forceinline__ HeadMask(const AttentionDropout& dropout, long batch, long head)
      : mask(dropout.source.mask(dropout.first_head + head)),
        sample(dropout.first_sample + batch) {}

  /// Words of keys 4 * group to 4 * group + 3.
  [[nodiscard]] __device__ __forceinline__ std::array<std::uint32_t, 4> words(long query,
                                                                              long group) const {
    return mask.words(sample, query, group);
  }
  [[nodiscard]] __device__ __forceinline__ float factor(std::uint32_t word) const {
    return word < mask.threshold ? 0.0F : mask.scale;
  }
};

/// Factors of the elements [t][n][0] to [3] of sums [queries x keys]: a lane has two neighbouring keys of two queries.
/// `query` and `key` are those of the first element of rows 16 t and columns 8 n. One call of Philox for four
/// elements: two lanes each make one of the two that both need. All lanes call it.
__device__ __forceinline__ void factors_by_queries(const HeadMask& mask,
                                                   long query,
                                                   long key,
                                                   float (&factors)[4]) {
  const int group = static_cast<int>(threadIdx.x % 32 / 4);
  const int pair = static_cast<int>(threadIdx.x % 4);
  const bool odd = pair % 2 != 0;
  const auto words = mask.words(query + group + (odd ? 8 : 0), key / 4 + pair / 2);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t kept = odd ? words[2 + i] : words[i];
    const std::uint32_t given = odd ? words[i] : words[2 + i];
    const std::uint32_t got = __shfl_xor_sync(0xffffffffU, given, 1);
    factors[i] = mask.factor(odd ? got : kept);
    factors[2 + i] = mask.factor(odd ? kept : got);
  }
}

/// The same of sums [keys x queries]: a lane has two keys of two neighbouring queries. Four lanes, of neighbouring keys,
/// each make the call for one of these elements, and exchange words like a matrix is transposed.
__device__ __forceinline__ void factors_by_keys(const HeadMask& mask,
                                                long query,
                                                long key,
                                                float (&factors)[4]) {
  const int group = static_cast<int>(threadIdx.x % 32 / 4);
  const int pair = static_cast<int>(threadIdx.x % 4);
  const int element = group % 4;
  auto words = mask.words(query + 2 * pair + element % 2, key / 4 + element / 2 * 2 + group / 4);
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = (element & distance) != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int low = distance == 1 ? 2 * i : i;
      const int high = low + distance;
      const std::uint32_t given = upper ? words[low] : words[high];
      const std::uint32_t got = __shfl_xor_sync(0xffffffffU, given, 4 * distance);
      words[low] = upper ? got : words[low];
      words[high] = upper ? words[high] : got;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    factors[i] = mask.factor(words[i]);
  }
}

}  // namespace lockstep
