// The second half of sums over tokens: partial sums of pieces of rows become one row.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/token_rows.h"

namespace lockstep {

/// Where results go; to[1] may be null.
struct TokenSums {
  float* to[2] = {nullptr, nullptr};
  bool accumulate = false;
};

/// to[s][c] (+)= the aligned tree over the blocks of the aligned tree over a block's pieces of
/// partials[((block * pieces_apart + piece) * num_sums + s) * cols + c], num_sums being the number of results. A block
/// without rows counts as zero. Reads partials once: 0.8 to 6 MB at 8 x 1024 tokens, 768 features, 2 us.
void combine_token_sums(cudaStream_t stream,
                        const TokenRows& rows,
                        const float* partials,
                        long cols,
                        const TokenSums& sums);

}  // namespace lockstep
