#include "nn/tensor_group.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

void insert_sorted(std::vector<long>& values, long value) {
  const auto place = std::lower_bound(values.begin(), values.end(), value);
  if (place == values.end() || *place != value) {
    values.insert(place, value);
  }
}

void insert_new(std::vector<TensorGroup::Sizes::Rows>& all,
                const std::vector<TensorGroup::Sizes::Rows>& others) {
  for (const auto& rows : others) {
    if (std::find(all.begin(), all.end(), rows) == all.end()) {
      all.push_back(rows);
    }
  }
}

std::size_t bytes_of(const TensorGroup::Sizes::Rows& rows) {
  return static_cast<std::size_t>(rows.elements()) * size_of(rows.dtype);
}

// Bytes of the buffer that all sums share.
std::size_t sum_bytes(const TensorGroup::Sizes& sizes) {
  std::size_t bytes =
      sizes.sums.empty() ? 0 : sizeof(float) * static_cast<std::size_t>(sizes.sums.back());
  for (const auto& rows : sizes.row_sums) {
    bytes = std::max(bytes, bytes_of(rows));
  }
  return bytes;
}

std::size_t gather_bytes(const TensorGroup::Sizes& sizes) {
  std::size_t bytes = 0;
  for (const auto& rows : sizes.row_gathers) {
    bytes = std::max(bytes, bytes_of(rows));
  }
  return bytes;
}

}  // namespace

void TensorGroup::Sizes::merge(const Sizes& other) {
  for (const long size : other.sums) {
    insert_sorted(sums, size);
  }
  for (const long size : other.gathers) {
    insert_sorted(gathers, size);
  }
  insert_new(row_sums, other.row_sums);
  insert_new(row_gathers, other.row_gathers);
}

TensorGroup::TensorGroup(Communicator& dry_group)
    : group_(&dry_group),
      measures_(true),
      sums_(dry_group.allocate(kMemoryAlignment)),
      rows_(dry_group.allocate(kMemoryAlignment)) {}

TensorGroup::TensorGroup(Communicator& group, const Sizes& sizes)
    : group_(&group),
      measures_(false),
      sizes_(sizes),
      sums_(group.allocate(sum_bytes(sizes))),
      rows_(group.allocate(gather_bytes(sizes))) {
  for (const long size : sizes.sums) {
    sum_operations_.push_back(make_sum(size));
  }
  for (const long size : sizes.gathers) {
    gather_operations_.push_back(make_gather(size));
  }
  for (const Sizes::Rows& rows : sizes.row_sums) {
    row_sum_operations_.push_back(make_rows(rows, true));
  }
  for (const Sizes::Rows& rows : sizes.row_gathers) {
    row_gather_operations_.push_back(make_rows(rows, false));
  }
}

TensorGroup::Prepared TensorGroup::make_sum(long size) {
  return {size, {}, group_->make_all_reduce(sums_.as<float>(), size, Reduction::kOrdered)};
}

TensorGroup::Prepared TensorGroup::make_gather(long size) {
  const std::size_t all = bytes_of(size * group_->size(), DType::kF32);
  Memory memory = group_->allocate(all);
  void* const data = memory.data();
  return {size, std::move(memory), group_->make_all_gather(data, all, bytes_of(size, DType::kF32))};
}

TensorGroup::Prepared& TensorGroup::find(std::vector<Prepared>& prepared, long size, bool is_sum) {
  const auto found = std::find_if(
      prepared.begin(), prepared.end(), [&](const Prepared& entry) { return entry.size == size; });
  if (found != prepared.end()) {
    return *found;
  }
  LOCKSTEP_CHECK(measures_);  // a size that the dry run did not see
  insert_sorted(is_sum ? sizes_.sums : sizes_.gathers, size);
  prepared.push_back(is_sum ? make_sum(size) : make_gather(size));
  return prepared.back();
}

Matrix TensorGroup::sum_buffer(long rows, long cols) const {
  return {sums_.data(), DType::kF32, rows, cols};
}

void TensorGroup::sum(long elements) {
  Operation& reduction = *find(sum_operations_, elements, true).operation;
  reduction.start();
  reduction.wait();
}

BlockSum TensorGroup::sum(Queue& queue, const BlockSum& products) {
  const Matrix buffer = sum_buffer(products.first.rows, products.first.cols);
  launch(queue, CombineBlocks{.blocks = products, .out = buffer});
  queue.synchronize();
  sum(buffer.size());
  return BlockSum(buffer);
}

TensorGroup::PreparedRows TensorGroup::make_rows(const Sizes::Rows& rows, bool is_sum) {
  PreparedRows prepared{rows, {}};
  const long sequence = rows.seq_length * rows.cols;
  const std::size_t item = size_of(rows.dtype);
  for (long i = 0; i < rows.sequences; ++i) {
    if (is_sum) {
      prepared.operations.push_back(
          group_->make_reduce_scatter(sums_.as<float>() + i * sequence, sequence, rows.cols));
    } else {
      prepared.operations.push_back(
          group_->make_all_gather(rows_.data() + static_cast<std::size_t>(i * sequence) * item,
                                  static_cast<std::size_t>(sequence) * item,
                                  static_cast<std::size_t>(rows.cols) * item));
    }
  }
  return prepared;
}

TensorGroup::PreparedRows& TensorGroup::find_rows(std::vector<PreparedRows>& prepared,
                                                  const Sizes::Rows& rows,
                                                  bool is_sum) {
  const auto found = std::find_if(prepared.begin(), prepared.end(), [&](const PreparedRows& entry) {
    return entry.rows == rows;
  });
  if (found != prepared.end()) {
    return *found;
  }
  LOCKSTEP_CHECK(measures_);
  insert_new(is_sum ? sizes_.row_sums : sizes_.row_gathers, {rows});
  prepared.push_back(make_rows(rows, is_sum));
  return prepared.back();
}

void TensorGroup::run_all(const std::vector<std::unique_ptr<Operation>>& operations) {
  for (const auto& operation : operations) {
    operation->start();
  }
  for (const auto& operation : operations) {
    operation->wait();
  }
}

void TensorGroup::sum_rows(Queue& queue, long seq_length, Matrix own) {
  const IndexRange tokens = part_of(seq_length, size(), rank());
  const long sequences = own.rows / tokens.size();
  queue.synchronize();
  run_all(find_rows(row_sum_operations_, {sequences, seq_length, own.cols, DType::kF32}, true)
              .operations);
  const Matrix all = sum_buffer(sequences * seq_length, own.cols);
  for (long i = 0; i < sequences; ++i) {
    launch(queue,
           CombineBlocks{
               .blocks = BlockSum(all.row_range(i * seq_length + tokens.begin, tokens.size())),
               .out = own.row_range(i * tokens.size(), tokens.size())});
  }
}

Matrix TensorGroup::gather_rows(Queue& queue, Matrix own, long seq_length) {
  const IndexRange tokens = part_of(seq_length, size(), rank());
  const long sequences = own.rows / tokens.size();
  const Matrix all(rows_.data(), own.dtype, sequences * seq_length, own.cols);
  for (long i = 0; i < sequences; ++i) {
    launch(queue,
           CombineBlocks{.blocks = BlockSum(own.row_range(i * tokens.size(), tokens.size())),
                         .out = all.row_range(i * seq_length + tokens.begin, tokens.size())});
  }
  queue.synchronize();
  run_all(find_rows(row_gather_operations_, {sequences, seq_length, own.cols, own.dtype}, false)
              .operations);
  return all;
}

float* TensorGroup::gather_part(long count) {
  return find(gather_operations_, count, false).memory.as<float>() + rank() * count;
}

const float* TensorGroup::gather(long count) {
  Prepared& gathering = find(gather_operations_, count, false);
  gathering.operation->start();
  gathering.operation->wait();
  return gathering.memory.as<float>();
}

}  // namespace lockstep
