// The one list of a model's parameters. Layers declare each parameter once; buffers, gradients,
// buckets, the optimiser, checkpoints and export read it here.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "base/integers.h"
#include "nn/tensor_split.h"

namespace lockstep {

enum class Initialisation : std::uint8_t { kZero, kOne, kNormal, kUniform };

/// A group of rows (or columns) of a split dimension that is cut into blocks by itself: of a fused
/// q, k, v weight each of the three, so that a block holds whole heads.
struct SplitPart {
  long size = 0;        ///< rows the user sees
  long block_size = 0;  ///< rows a block stores, of which the last blocks' may be padding
  /// The rows are this many equal runs, each of which is cut by itself into its share of the blocks; a
  /// divisor of both.
  long groups = 1;
};

/// What a layer says of a parameter.
struct ParameterSpec {
  std::string name;
  std::vector<long> shape;  ///< as the user sees it: one or two dimensions
  Initialisation initialisation = Initialisation::kZero;
  double scale = 0;  ///< kNormal: standard deviation; kUniform: values in [-scale, scale)
  /// Dimension that a tensor split cuts, -1 for none. Sizes of the parts sum to it.
  int split_dimension = -1;
  std::vector<SplitPart> parts;
  /// The gradient of a second use (a tied input embedding) is accumulated apart, see ParameterTable.
  bool tied_input = false;
  /// Also a parameter of another rank of the pipeline, which has the other use and its gradient (the
  /// ends of a tied embedding). Both add the gradients up and update alike.
  bool is_shared = false;
  bool is_copy = false;  ///< of the two, the one that norms and counts leave out
};

/// A parameter with its place in the flat buffers.
struct Parameter : ParameterSpec {
  int num_blocks = 1;   ///< stored here
  int first_block = 0;  ///< of all blocks, the first that is stored here
  int all_blocks = 1;   ///< stored on all ranks
  long block_rows = 1;
  long block_cols = 0;
  long block_stride = 0;  ///< elements from block to block: a multiple of kChunkElements
  long offset = 0;        ///< of the first stored block, in elements
  int unit = 0;           ///< see ParameterTable::begin_unit

  [[nodiscard]] long rows() const { return shape.size() == 2 ? shape[0] : 1; }
  [[nodiscard]] long cols() const { return shape.back(); }
  [[nodiscard]] long num_elements() const { return rows() * cols(); }
  [[nodiscard]] long stored_elements() const { return num_blocks * block_stride; }
  [[nodiscard]] bool decays() const { return shape.size() >= 2; }
  [[nodiscard]] bool is_split() const { return split_dimension >= 0; }

  /// Calls run(canonical, stored, count) for every run of stored elements that is contiguous both in
  /// the user's row-major order and in the flat buffer (indices in elements, `stored` from offset).
  void for_each_run(FunctionRef<void(long canonical, long stored, long count)> run) const;
};

/// Parameters in the order of the forward pass, laid out in one flat range of elements. Each
/// parameter, and each block of a split one, starts on a multiple of kChunkElements; the padding
/// between them is zero and stays zero.
///
/// Gradients have one more region, in front: the input-side gradient of a tied embedding. It goes
/// through every reduction by itself and is added to the output side once, after it.
class ParameterTable {
 public:
  /// Holds the rank's blocks of split parameters and all of the others.
  explicit ParameterTable(TensorSplit split) : split_(split) {}

  /// What is declared from here on, up to the next call, is a unit: parameters that are gathered and
  /// reduced together where ranks share them. Returns its number.
  int begin_unit();

  /// Declares the next parameter and returns its index. Names are unique.
  int add(ParameterSpec spec);

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  [[nodiscard]] const Parameter& operator[](int index) const {
    return parameters_[static_cast<std::size_t>(index)];
  }
  /// Null for a name that was not declared.
  [[nodiscard]] const Parameter* find(const std::string& name) const {
    const auto found = index_of_.find(name);
    return found == index_of_.end() ? nullptr : &(*this)[found->second];
  }
  /// Both throw std::out_of_range for a name that was not declared.
  [[nodiscard]] int index_of(const std::string& name) const { return index_of_.at(name); }
  [[nodiscard]] const Parameter& by_name(const std::string& name) const {
    return (*this)[index_of(name)];
  }
  [[nodiscard]] const TensorSplit& split() const { return split_; }

  /// Elements of each unit, which follow each other without gaps.
  [[nodiscard]] const std::vector<IndexRange>& units() const { return units_; }
  /// Elements of the flat parameter buffer.
  [[nodiscard]] long flat_size() const { return flat_size_; }
  /// Elements of the region in front of the gradients; 0 without a tied embedding.
  [[nodiscard]] long tied_size() const { return tied_size_; }
  /// Index of the tied parameter, -1 without one.
  [[nodiscard]] int tied_index() const { return tied_index_; }
  /// Index of the shared parameter, -1 without one.
  [[nodiscard]] int shared_index() const { return shared_index_; }
  /// Elements of the flat gradient buffer: tied_size() + flat_size().
  [[nodiscard]] long gradient_size() const { return tied_size_ + flat_size_; }
  /// Trained numbers of the whole parameters, padding and doubles left out.
  [[nodiscard]] long num_elements() const;

 private:
  TensorSplit split_;
  std::vector<Parameter> parameters_;
  std::vector<IndexRange> units_;
  std::unordered_map<std::string, int> index_of_;
  long flat_size_ = 0;
  long tied_size_ = 0;
  int tied_index_ = -1;
  int shared_index_ = -1;
};

}  // namespace lockstep
