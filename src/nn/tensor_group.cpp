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

template <typename Size>
void insert_new(std::vector<Size>& all, const std::vector<Size>& others) {
  for (const Size& other : others) {
    if (std::find(all.begin(), all.end(), other) == all.end()) {
      all.push_back(other);
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

std::size_t bytes_of(const TensorGroup::Sizes::Part& part) {
  return static_cast<std::size_t>(part.elements) * size_of(part.dtype);
}

// Bytes of the largest part that ranks which share a kv head exchange.
std::size_t shared_bytes(const TensorGroup::Sizes& sizes) {
  std::size_t bytes = 0;
  for (const long elements : sizes.shared_sums) {
    bytes = std::max(bytes, bytes_of(elements, DType::kF32));
  }
  for (const auto& part : sizes.shared_gathers) {
    bytes = std::max(bytes, bytes_of(part));
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
  insert_new(shared_sums, other.shared_sums);
  insert_new(shared_gathers, other.shared_gathers);
}

TensorGroup::TensorGroup(Communicator& dry_group, Communicator* dry_sharing)
    : group_(&dry_group),
      sharing_(dry_sharing),
      measures_(true),
      sums_(dry_group.allocate(kMemoryAlignment)),
      rows_(dry_group.allocate(kMemoryAlignment)),
      shared_(dry_group.allocate(kMemoryAlignment)) {}

TensorGroup::TensorGroup(Communicator& group, Communicator* sharing, const Sizes& sizes)
    : group_(&group),
      sharing_(sharing),
      measures_(false),
      sizes_(sizes),
      sums_(group.allocate(sum_bytes(sizes))),
      rows_(group.allocate(gather_bytes(sizes))) {
  for (const long size : sizes.sums) {
    sum_operations_.push_back(make(size, Kind::kSum));
  }
  for (const long size : sizes.gathers) {
    gather_operations_.push_back(make(size, Kind::kGather));
  }
  for (const Sizes::Rows& rows : sizes.row_sums) {
    row_sum_operations_.push_back(make_rows(rows, true));
  }
  for (const Sizes::Rows& rows : sizes.row_gathers) {
    row_gather_operations_.push_back(make_rows(rows, false));
  }
  if (sharing_ == nullptr) {
    return;
  }
  shared_ = sharing_->allocate(shared_bytes(sizes) * static_cast<std::size_t>(sharing_->size()));
  for (const long elements : sizes.shared_sums) {
    shared_sum_operations_.push_back(make(elements, Kind::kSharedSum));
  }
  for (const Sizes::Part& part : sizes.shared_gathers) {
    shared_gather_operations_.push_back(make_shared_gather(part));
  }
}

TensorGroup::Prepared TensorGroup::make(long size, Kind kind) {
  if (kind == Kind::kSum) {
    return {size, {}, group_->make_all_reduce(sums_.as<float>(), size, Reduction::kOrdered)};
  }
  if (kind == Kind::kSharedSum) {
    const long all = size * sharing_->size();
    return {size, {}, sharing_->make_reduce_scatter(shared_.as<float>(), all, size)};
  }
  const std::size_t all = bytes_of(size * group_->size(), DType::kF32);
  Memory memory = group_->allocate(all);
  void* const data = memory.data();
  return {size, std::move(memory), group_->make_all_gather(data, all, bytes_of(size, DType::kF32))};
}

TensorGroup::PreparedPart TensorGroup::make_shared_gather(const Sizes::Part& part) {
  const std::size_t bytes = bytes_of(part);
  const std::size_t all = bytes * static_cast<std::size_t>(sharing_->size());
  return {part, sharing_->make_all_gather(shared_.data(), all, bytes)};
}

TensorGroup::Prepared& TensorGroup::find(std::vector<Prepared>& prepared, long size, Kind kind) {
  const auto found = std::find_if(
      prepared.begin(), prepared.end(), [&](const Prepared& entry) { return entry.size == size; });
  if (found != prepared.end()) {
    return *found;
  }
  LOCKSTEP_CHECK(measures_);  // a size that the dry run did not see
  insert_sorted(kind == Kind::kSum      ? sizes_.sums
                : kind == Kind::kGather ? sizes_.gathers
                                        : sizes_.shared_sums,
                size);
  prepared.push_back(make(size, kind));
  return prepared.back();
}

Matrix TensorGroup::sum_buffer(long rows, long cols) const {
  return {sums_.data(), DType::kF32, rows, cols};
}

void TensorGroup::sum(long elements) {
  Operation& reduction = *find(sum_operations_, elements, Kind::kSum).operation;
  reduction.start();
  reduction.wait();
}

BlockSum TensorGroup::sum(Queue& queue, const BlockSum& products) {
  const Matrix buffer = sum_buffer(products.first.rows, products.first.cols);
  launch(queue, CombineBlocks{.blocks = products, .out = buffer});
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
  run_all(find_rows(row_gather_operations_, {sequences, seq_length, own.cols, own.dtype}, false)
              .operations);
  return all;
}

float* TensorGroup::gather_part(long count) {
  return find(gather_operations_, count, Kind::kGather).memory.as<float>() + rank() * count;
}

const float* TensorGroup::gather(long count) {
  Prepared& gathering = find(gather_operations_, count, Kind::kGather);
  gathering.operation->start();
  gathering.operation->wait();
  return gathering.memory.as<float>();
}

Matrix TensorGroup::shared_part(int sharing_rank, DType dtype, long rows, long cols) const {
  const std::size_t before = static_cast<std::size_t>(sharing_rank) * bytes_of(rows * cols, dtype);
  return {shared_.as<std::byte>() + before, dtype, rows, cols};
}

void TensorGroup::gather_shared(DType dtype, long elements) {
  const Sizes::Part part{elements, dtype};
  const auto is_it = [&](const PreparedPart& entry) { return entry.part == part; };
  auto found =
      std::find_if(shared_gather_operations_.begin(), shared_gather_operations_.end(), is_it);
  if (found == shared_gather_operations_.end()) {
    LOCKSTEP_CHECK(measures_);
    insert_new(sizes_.shared_gathers, {part});
    shared_gather_operations_.push_back(make_shared_gather(part));
    found = shared_gather_operations_.end() - 1;
  }
  found->operation->start();
  found->operation->wait();
}

void TensorGroup::sum_shared(long elements) {
  Operation& reduction = *find(shared_sum_operations_, elements, Kind::kSharedSum).operation;
  reduction.start();
  reduction.wait();
}

}  // namespace lockstep
