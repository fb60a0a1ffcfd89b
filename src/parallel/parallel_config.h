// Section [parallel] of the configuration: the real layout and the virtual one.
#pragma once

#include <string>

namespace lockstep {

struct ParallelConfig {
  long tensor = 1;
  long pipeline = 1;
  long data = 0;                         // 0: the ranks that are left
  bool sequence = false;                 // sequence-parallel norms inside the tensor group
  std::string schedule = "1f1b";         // gpipe | 1f1b | interleaved | zero-bubble
  long virtual_stages = 1;               // interleaved: model chunks a rank
  long zero_stage = 0;                   // 0 | 1 | 2 | 3
  std::string reduction = "ordered";     // ordered | native
  std::string accumulate = "fold-tree";  // fold-tree | tree-fold
  long virtual_data = 0;                 // 0: the degree of the first start
  long virtual_tensor = 0;               // 0: the degree of the first start
  long bucket_mib = 25;
  bool overlap = true;
  std::string backend = "auto";  // auto | mpi | nccl
};

}  // namespace lockstep
