#include "parallel/model_state.h"

#include <algorithm>
#include <utility>

#include "base/bfloat16.h"
#include "base/error.h"
#include "base/trace.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

std::vector<ModelState::Piece> pieces_of(const ParameterTable& table,
                                         const ShardPlan& shards,
                                         bool master_is_packed) {
  if (!shards.is_sharded()) {
    return {{0, 0, 0, table.flat_size()}};
  }
  std::vector<ModelState::Piece> pieces;
  long packed = 0;
  for (const IndexRange& range : shards.owned) {
    pieces.push_back({range.begin, master_is_packed ? packed : range.begin, packed, range.size()});
    packed += range.size();
  }
  return pieces;
}

long size_of_pieces(const std::vector<ModelState::Piece>& pieces) {
  return pieces.empty() ? 0 : pieces.back().state + pieces.back().count;
}

// The pieces, cut where weight decay begins or ends.
std::vector<OptimizerRange> ranges_of(const ParameterTable& table,
                                      const std::vector<ModelState::Piece>& pieces,
                                      bool packed_gradients) {
  std::vector<OptimizerRange> ranges;
  for (const ModelState::Piece& piece : pieces) {
    bool first_of_piece = true;
    for (const Parameter& parameter : table.parameters()) {
      const long begin = std::max(parameter.offset, piece.flat);
      const long end =
          std::min(parameter.offset + parameter.stored_elements(), piece.flat + piece.count);
      if (begin >= end) {
        continue;
      }
      if (!first_of_piece && ranges.back().decays == parameter.decays()) {
        ranges.back().count += end - begin;
        continue;
      }
      const long inside = begin - piece.flat;
      ranges.push_back({.state = piece.state + inside,
                        .master = piece.master + inside,
                        .gradient = packed_gradients ? piece.state + inside : begin,
                        .compute = begin,
                        .count = end - begin,
                        .decays = parameter.decays()});
      first_of_piece = false;
    }
  }
  return ranges;
}

}  // namespace

ModelState::ModelState(const ParameterTable& table,
                       DType dtype,
                       const OptimizerConfig& optimizer,
                       ShardPlan shards,
                       Queue& queue)
    : table_(&table),
      queue_(&queue),
      dtype_(dtype),
      shards_(std::move(shards)),
      pieces_(pieces_of(table, shards_, master_is_packed())),
      optimizer_(optimizer,
                 ranges_of(table, pieces_, shards_.packed_gradients),
                 size_of_pieces(pieces_),
                 queue) {
  const long all = table.flat_size();
  Communicator* const group = shards_.data_group;
  // Every rank writes its part. It may, as all ranks have read the weights of a step before one of
  // them updates its own: norm and loss of all are exchanged in between.
  const auto gathered = [&](DType kind) {
    return shards_.is_sharded() ? group->allocate_shared(bytes_of(all, kind))
                                : queue.allocate(bytes_of(all, kind));
  };
  if (shards_.stage == 3) {
    master_ = queue.allocate(bytes_of(size_of_pieces(pieces_), DType::kF32));
    return;
  }
  if (narrow()) {
    master_ = queue.allocate(bytes_of(size_of_pieces(pieces_), DType::kF32));
    compute_ = gathered(dtype);
  } else {
    master_ = gathered(DType::kF32);
  }
  if (!shards_.is_sharded()) {
    return;
  }
  auto* const weights = narrow() ? compute_.data() : master_.data();
  for (const IndexRange& bucket : shards_.buckets) {
    if (bucket.begin >= table.tied_size()) {
      gathers_.push_back(
          group->make_all_gather(weights + bytes_of(bucket.begin - table.tied_size(), dtype),
                                 bytes_of(bucket.size(), dtype),
                                 bytes_of(kChunkElements, dtype)));
    }
  }
}

bool ModelState::is_shared(const Memory& memory) const {
  return shards_.is_sharded() && shards_.stage < 3 && &memory == (narrow() ? &compute_ : &master_);
}

std::size_t ModelState::taken(const Memory& memory) const {
  return is_shared(memory) && !shards_.data_group->takes_shared() ? 0 : memory.bytes();
}

std::size_t ModelState::master_bytes() const {
  return taken(master_);
}

std::size_t ModelState::compute_bytes() const {
  return taken(compute_);
}

std::size_t ModelState::shared_bytes() const {
  return (is_shared(master_) ? master_bytes() : 0) + (is_shared(compute_) ? compute_bytes() : 0);
}

void ModelState::initialise(std::uint64_t seed) {
  for (const Piece& piece : pieces_) {
    launch(*queue_,
           FillZero{.data = master() + piece.master, .bytes = bytes_of(piece.count, DType::kF32)});
  }
  for (const Optimizer::State& state : optimizer_.states()) {
    launch(*queue_,
           FillZero{.data = state.data, .bytes = bytes_of(size_of_pieces(pieces_), DType::kF32)});
  }
  ThreadPool* const threads = queue_->host_threads();
  if (threads == nullptr) {
    return;  // the dry device has no values
  }
  if (queue_->kind() == DeviceKind::kCpu) {
    for (const Piece& piece : pieces_) {
      lockstep::initialise(
          *table_, seed, {piece.flat, piece.flat + piece.count}, master() + piece.master, *threads);
    }
  } else {
    initialise_through_host(seed, *threads);
  }
  refresh_compute_copy();
}

// A part at a time: what is drawn depends on the element alone.
void ModelState::initialise_through_host(std::uint64_t seed, ThreadPool& threads) {
  constexpr long kPart = 1L << 22U;
  std::vector<float> values;
  for (const Piece& piece : pieces_) {
    for (long begin = 0; begin < piece.count; begin += kPart) {
      const long count = std::min(kPart, piece.count - begin);
      values.assign(static_cast<std::size_t>(count), 0.0F);
      const long flat = piece.flat + begin;
      lockstep::initialise(*table_, seed, {flat, flat + count}, values.data(), threads);
      copy_in(0, {flat, flat + count}, values.data());
    }
  }
}

void ModelState::refresh_compute_copy() {
  if (narrow() && shards_.stage < 3) {
    for (const Piece& piece : pieces_) {
      launch(*queue_,
             CastToBFloat16{.from = master() + piece.master,
                            .to = compute_.as<BFloat16>() + piece.flat,
                            .count = piece.count});
    }
  }
  gather_weights();
}

void ModelState::gather_weights() {
  if (gathers_.empty()) {
    return;
  }
  const TraceSpan span("gather weights", "step");
  for (const auto& gather : gathers_) {
    gather->start();
  }
  for (const auto& gather : gathers_) {
    gather->wait();
  }
}

void ModelState::update(const float* gradients,
                        double lr,
                        float gradient_scale,
                        long update_number) {
  optimizer_.update(*queue_,
                    {.master = master(),
                     .gradients = gradients,
                     .compute_bf16 = narrow() && shards_.stage < 3 ? compute_.data() : nullptr,
                     .lr = lr,
                     .gradient_scale = gradient_scale,
                     .update_number = update_number});
  gather_weights();
}

void ModelState::write_owned(IndexRange part, void* buffer) const {
  for (const Piece& piece : pieces_) {
    const long begin = std::max(piece.flat, part.begin);
    const long end = std::min(piece.flat + piece.count, part.end);
    if (begin >= end) {
      continue;
    }
    const float* const from = master() + piece.master + (begin - piece.flat);
    if (narrow()) {
      launch(*queue_,
             CastToBFloat16{.from = from,
                            .to = static_cast<BFloat16*>(buffer) + (begin - part.begin),
                            .count = end - begin});
      continue;
    }
    float* const to = static_cast<float*>(buffer) + (begin - part.begin);
    const float* const inputs[] = {from};
    float* const outputs[] = {to};
    launch(*queue_,
           SumTree{.inputs = inputs,
                   .num_inputs = 1,
                   .outputs = outputs,
                   .num_outputs = 1,
                   .count = end - begin});
  }
}

Weights ModelState::weights() const {
  LOCKSTEP_CHECK(shards_.stage < 3);
  return {*table_, narrow() ? compute_.data() : master_.data(), dtype_};
}

std::vector<float*> ModelState::buffers() const {
  std::vector<float*> all{master()};
  for (const Optimizer::State& state : optimizer_.states()) {
    all.push_back(state.data);
  }
  return all;
}

float* ModelState::address(std::size_t buffer, IndexRange part) const {
  const auto after = std::upper_bound(
      pieces_.begin(), pieces_.end(), part.begin, [](long flat, const Piece& piece) {
        return flat < piece.flat;
      });
  LOCKSTEP_CHECK(after != pieces_.begin());
  const Piece& piece = *std::prev(after);
  LOCKSTEP_CHECK(part.end <= piece.flat + piece.count);
  const long first = buffer == 0 ? piece.master : piece.state;
  return buffers()[buffer] + first + (part.begin - piece.flat);
}

void ModelState::copy_out(std::size_t buffer, IndexRange part, float* values) const {
  queue_->copy_to_host(values, address(buffer, part), bytes_of(part.size(), DType::kF32));
}

void ModelState::copy_in(std::size_t buffer, IndexRange part, const float* values) {
  queue_->copy_to_device(address(buffer, part), values, bytes_of(part.size(), DType::kF32));
}

ModelView ModelState::view() const {
  LOCKSTEP_CHECK(!shards_.is_sharded());
  return {table_, master(), optimizer_.states()};
}

}  // namespace lockstep
