// Attention without tensor cores: f32, and bf16 with large heads.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/backend.h"

namespace lockstep {

/// As run_on_cuda, of any dtype and head_dim; all arithmetic in f32. Heads wider than 128 compute scores anew for
/// every 128 columns of their results.
void run_plain_attention(CudaQueue& queue, const AttentionForward& op);

/// `statistics` has for every query of every head, [batch x heads x seq_length, padded to kStatisticsMultiple],
/// log_sum_exp * log2(e) and the sum of dout * out: infinity and 0 in the padding.
void run_plain_attention(CudaQueue& queue, const AttentionBackward& op, const float2* statistics);

}  // namespace lockstep
