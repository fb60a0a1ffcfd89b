// The virtual layout decides the bits; the real one only where they are computed.
#pragma once

#include <string>
#include <vector>

#include "base/integers.h"

namespace lockstep {

/// V virtual data ranks, owned by D real ones, n = V / D neighbours each.
struct VirtualLayout {
  int virtual_data = 1;
  int virtual_tensor = 1;
  int data_ranks = 1;
  int data_rank = 0;

  /// Virtual ranks a real rank owns: a power of two.
  [[nodiscard]] int owned() const { return virtual_data / data_ranks; }
  [[nodiscard]] int first_owned() const { return data_rank * owned(); }
  /// Micro-batches [begin, end) of `num_micro_batches` that virtual rank `v` owns; may be none.
  [[nodiscard]] IndexRange micro_batches(long num_micro_batches, int v) const {
    return part_of(num_micro_batches, virtual_data, v);
  }
};

/// The virtual data degree for `data_ranks` ranks: `wanted` (0: data_ranks) when the real ranks fit
/// it, else the smallest data_ranks * 2^k that is not below it; `changed` then says so.
int choose_virtual_degree(long wanted, int real, bool& changed);

/// The real data degrees that give the same bits as `virtual_data`, for the message at the start:
/// all D up to V for which V / D is a power of two.
std::vector<int> equivalent_degrees(int virtual_data);

}  // namespace lockstep
