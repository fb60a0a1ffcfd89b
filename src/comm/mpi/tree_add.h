// Sums of the buffers of several ranks in the order of the aligned tree.
#pragma once

#include <span>
#include <vector>

#include "base/aligned_tree.h"
#include "device/cpu/thread_pool.h"

namespace lockstep {

/// Adds f32 buffers that stand for nodes of an aligned tree, up to one node above them. Compiled
/// once into a list of additions, then run without allocation.
class TreeAdd {
 public:
  /// nodes[i] is the node that input i stands for; together they cover `root` exactly, in any
  /// order. `leaves` is the number of leaves of the whole tree.
  TreeAdd(std::span<const TreeNode> nodes, TreeNode root, long leaves);

  /// outputs[j][i] = the value of `root` at element i in [0, count), for all j. Outputs may be
  /// inputs. Uses `threads` for large counts (may be null); bits do not depend on it.
  /// Cost: inputs + outputs times count words of memory traffic; inner nodes stay in the L1 cache.
  void run(std::span<const float* const> inputs,
           std::span<float* const> outputs,
           long count,
           ThreadPool* threads) const;

 private:
  struct Step {
    int left = 0;
    int right = 0;
    int to = 0;  ///< scratch row
  };

  int compile(std::span<const TreeNode> nodes, TreeNode root, long leaves, int free_row);
  void run_range(std::span<const float* const> inputs,
                 std::span<float* const> outputs,
                 long begin,
                 long end) const;

  int num_inputs_;
  std::vector<Step> steps_;  // filled while result_ is initialised
  int result_;               ///< an input, or num_inputs_ + a scratch row
};

}  // namespace lockstep
