// How the flat gradient buffer is cut for reductions, and what of it a rank of the data group owns.
#pragma once

#include <vector>

#include "base/integers.h"
#include "nn/parameter_table.h"

namespace lockstep {

/// Buckets of at most `bucket_bytes` bytes (a chunk at least) that cover the flat gradient buffer of
/// `table`, from its end to its front, where a backward pass completes it last. The region of the
/// tied input side and the tied parameter are cut alike and apart from the rest, so that slices of
/// the one have their counterparts in slices of the other; so is a shared parameter on both of its ranks.
/// No bucket holds gradients of two of `chunks` (elements of the parameters of the model's parts on this
/// rank, ascending), which complete at different times, nor with `by_units` of two units.
std::vector<IndexRange> make_buckets(const ParameterTable& table,
                                     const std::vector<IndexRange>& chunks,
                                     long bucket_bytes,
                                     bool by_units = false);

/// The elements of the flat parameter buffer that `rank` of `num_ranks` owns after the buckets were
/// scattered (slice_of each, in chunks), ascending and without gaps of their own.
std::vector<IndexRange> owned_ranges(const ParameterTable& table,
                                     const std::vector<IndexRange>& buckets,
                                     int num_ranks,
                                     int rank);

}  // namespace lockstep
