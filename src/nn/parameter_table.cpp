#include "nn/parameter_table.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

// Runs of a dimension of `parts`: canonical index, stored block, index within the block, length.
void for_each_piece(const Parameter& parameter,
                    FunctionRef<void(long canonical, int block, long stored, long count)> piece) {
  long part_begin = 0;
  long stored_begin = 0;
  for (const SplitPart& part : parameter.parts) {
    const long blocks_per_group = parameter.all_blocks / part.groups;
    const long rows_per_group = part.size / part.groups;
    for (int block = 0; block < parameter.num_blocks; ++block) {
      const long of_all = parameter.first_block + block;
      const long group = of_all / blocks_per_group;
      const long begin = group * rows_per_group + of_all % blocks_per_group * part.block_size;
      const long end = std::min(begin + part.block_size, (group + 1) * rows_per_group);
      if (begin < end) {
        piece(part_begin + begin, block, stored_begin, end - begin);
      }
    }
    part_begin += part.size;
    stored_begin += part.block_size;
  }
}

void check_groups(const SplitPart& part, int num_blocks) {
  LOCKSTEP_CHECK(part.size % part.groups == 0 && num_blocks % part.groups == 0);
}

}  // namespace

void Parameter::for_each_run(FunctionRef<void(long, long, long)> run) const {
  if (split_dimension < 0) {
    run(0, 0, num_elements());
    return;
  }
  const bool by_rows = shape.size() == 2 && split_dimension == 0;
  for_each_piece(*this, [&](long canonical, int block, long stored, long count) {
    const long base = block * block_stride;
    if (by_rows) {
      run(canonical * cols(), base + stored * block_cols, count * cols());
      return;
    }
    for (long row = 0; row < rows(); ++row) {
      run(row * cols() + canonical, base + row * block_cols + stored, count);
    }
  });
}

int ParameterTable::begin_unit() {
  if (units_.empty() || units_.back().size() > 0) {
    units_.push_back({flat_size_, flat_size_});
  }
  return static_cast<int>(units_.size()) - 1;
}

int ParameterTable::add(ParameterSpec spec) {
  LOCKSTEP_CHECK(spec.shape.size() == 1 || spec.shape.size() == 2);
  const bool is_new = index_of_.emplace(spec.name, static_cast<int>(parameters_.size())).second;
  LOCKSTEP_CHECK(is_new);
  Parameter parameter{std::move(spec)};
  parameter.block_rows = parameter.rows();
  parameter.block_cols = parameter.cols();
  if (parameter.split_dimension >= 0) {
    parameter.num_blocks = split_.local_blocks();
    parameter.first_block = split_.first_block();
    parameter.all_blocks = split_.num_blocks;
    long size = 0;
    long block_size = 0;
    for (const SplitPart& part : parameter.parts) {
      size += part.size;
      block_size += part.block_size;
      check_groups(part, split_.num_blocks);
    }
    const bool by_rows = parameter.shape.size() == 2 && parameter.split_dimension == 0;
    LOCKSTEP_CHECK(size == (by_rows ? parameter.rows() : parameter.cols()));
    (by_rows ? parameter.block_rows : parameter.block_cols) = block_size;
  }
  parameter.block_stride = round_up(parameter.block_rows * parameter.block_cols, kChunkElements);
  parameter.offset = flat_size_;
  flat_size_ += parameter.stored_elements();
  if (units_.empty()) {
    begin_unit();
    units_.back().begin = parameter.offset;
  }
  units_.back().end = flat_size_;
  parameter.unit = static_cast<int>(units_.size()) - 1;
  if (parameter.tied_input) {
    LOCKSTEP_CHECK(tied_index_ < 0);
    tied_index_ = static_cast<int>(parameters_.size());
    tied_size_ = parameter.stored_elements();
  }
  if (parameter.is_shared) {
    LOCKSTEP_CHECK(shared_index_ < 0 && tied_index_ < 0);
    shared_index_ = static_cast<int>(parameters_.size());
  }
  parameters_.push_back(std::move(parameter));
  return static_cast<int>(parameters_.size()) - 1;
}

long ParameterTable::num_elements() const {
  long sum = 0;
  for (const Parameter& parameter : parameters_) {
    sum += parameter.num_elements();
  }
  return sum;
}

}  // namespace lockstep
