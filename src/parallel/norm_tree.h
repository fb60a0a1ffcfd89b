// The order in which the squared norm of all gradients is summed, and who can sum which part.
//
// Squares of a 4,096-element chunk are summed by one kernel; chunks of a block of a parameter by the
// aligned tree over them, blocks of a parameter by the aligned tree over its blocks, parameters by
// the aligned tree over the table of the whole model. Nothing in this depends on ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/aligned_tree.h"
#include "base/function_ref.h"
#include "base/integers.h"
#include "nn/parameter_table.h"

namespace lockstep {

/// A node of one of the nested trees.
struct NormNode {
  enum class Tree : std::uint8_t { kParameters, kBlocks, kChunks };

  Tree tree = Tree::kParameters;
  int parameter = 0;  ///< in the whole model; of kBlocks and kChunks
  int block = 0;      ///< of kChunks
  TreeNode node;

  friend bool operator==(const NormNode&, const NormNode&) = default;
};

class NormTree {
 public:
  /// `whole` is the table of the whole model, all blocks on one rank.
  explicit NormTree(const ParameterTable& whole);

  /// The fewest nodes that cover what a rank sums: the parts of its table that lie in `ranges`
  /// (elements of its flat buffer, multiples of kChunkElements, ascending). Parameters that are not
  /// split are left out unless `counts_replicated`, which one rank of a tensor group says.
  [[nodiscard]] std::vector<NormNode> covering_nodes(const ParameterTable& table,
                                                     const std::vector<IndexRange>& ranges,
                                                     bool counts_replicated) const;

  /// The value of `node`, whose chunks are all there. chunk(parameter, block, index) with the indices
  /// of the whole model.
  using ChunkValue = FunctionRef<double(int parameter, int block, long index)>;
  [[nodiscard]] double value_of(const NormNode& node, ChunkValue chunk) const;

  [[nodiscard]] NormNode root() const;
  /// Whether a node has two children, one (the tree below its leaf), and which.
  [[nodiscard]] bool has_right(const NormNode& node) const;
  [[nodiscard]] static NormNode left_of(const NormNode& node);
  [[nodiscard]] static NormNode right_of(const NormNode& node);
  /// The root of the tree that a leaf of kParameters or kBlocks stands for.
  [[nodiscard]] NormNode below(const NormNode& leaf) const;
  [[nodiscard]] int index_of(const std::string& name) const { return index_of_.at(name); }

 private:
  struct Shape {
    int blocks = 1;
    long chunks = 0;  ///< a block
  };

  [[nodiscard]] long leaves_of(const NormNode& node) const;
  [[nodiscard]] bool cover_parameter(const Parameter& parameter,
                                     int index,
                                     const std::vector<IndexRange>& ranges,
                                     std::vector<NormNode>& nodes) const;

  std::vector<Shape> shapes_;
  std::map<std::string, int> index_of_;
};

/// Additions that combine the nodes of all ranks to the root, put in order once.
class NormCombination {
 public:
  /// `nodes` of all ranks together cover the root. Throws Error (a bug) if they do not.
  NormCombination(const NormTree& tree, const std::vector<NormNode>& nodes);

  /// `values[i]` is that of nodes[i]. No allocation.
  [[nodiscard]] double combine(const std::vector<double>& values);

 private:
  struct Step {
    std::size_t left = 0;
    std::size_t right = 0;
  };

  std::size_t compile(const NormTree& tree,
                      const NormNode& node,
                      const std::vector<NormNode>& nodes);

  std::size_t num_values_;
  std::vector<Step> steps_;  ///< step i adds two values and makes value num_values_ + i
  std::size_t result_;
  std::vector<double> work_;
};

}  // namespace lockstep
