#include "parallel/whole_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr long kMessageFloats = 1L << 20U;
constexpr int kTag = 0;

// Calls piece(part) for every part of at most `size` elements of the ranges.
template <typename Piece>
void for_each_part(const std::vector<IndexRange>& ranges, long size, Piece piece) {
  for (const IndexRange& range : ranges) {
    for (long begin = range.begin; begin < range.end; begin += size) {
      piece(IndexRange{begin, std::min(begin + size, range.end)});
    }
  }
}

// Calls run(whole, own, count) for the runs of a share's elements [part.begin, part.end): elements of
// the whole model's flat buffer and of the share's.
template <typename Run>
void for_each_run(const ParameterTable& whole,
                  const ParameterTable& own,
                  IndexRange part,
                  Run run) {
  for (const Parameter& parameter : own.parameters()) {
    if (parameter.offset >= part.end ||
        parameter.offset + parameter.stored_elements() <= part.begin) {
      continue;
    }
    const Parameter& target = whole.by_name(parameter.name);
    parameter.for_each_run([&](long canonical, long stored, long count) {
      const long first = parameter.offset + stored;
      const long begin = std::max(first, part.begin);
      const long end = std::min(first + count, part.end);
      if (begin < end) {
        run(target.offset + canonical + begin - first, begin, end - begin);
      }
    });
  }
}

}  // namespace

WholeModel::WholeModel(const ParameterTable& whole,
                       std::vector<ModelShare> shares,
                       ModelState& state,
                       Communicator& world,
                       Queue& queue)
    : table_(&whole),
      shares_(std::move(shares)),
      state_(&state),
      world_(&world),
      message_floats_(std::min(kMessageFloats, whole.flat_size())) {
  LOCKSTEP_CHECK(whole.split().num_blocks == 1);
  const auto floats = static_cast<std::size_t>(whole.flat_size()) * state.buffers().size();
  if (world.rank() == 0) {
    whole_ = queue.allocate(floats * sizeof(float));
  }
  message_ = queue.allocate(static_cast<std::size_t>(message_floats_) * sizeof(float));
}

ModelView WholeModel::view() const {
  ModelView view{.table = table_, .states = {}};
  view.weights = whole_.as<float>();
  const auto& states = state_->optimizer().states();
  for (std::size_t i = 0; i < states.size(); ++i) {
    view.states.push_back(
        {states[i].name, whole_.as<float>() + static_cast<long>(i + 1) * table_->flat_size()});
  }
  return view;
}

// Writes what stands in `message` (elements `part` of the share) to a buffer of the whole model.
void WholeModel::place(const ModelShare& share,
                       IndexRange part,
                       float* message,
                       float* buffer) const {
  for_each_run(*table_, *share.table, part, [&](long whole, long own, long count) {
    std::copy_n(message + (own - part.begin), count, buffer + whole);
  });
}

void WholeModel::gather() {
  for (int from = 0; from < world_->size(); ++from) {
    const bool is_needed = shares_[static_cast<std::size_t>(from)].is_needed;
    if (is_needed && (world_->rank() == 0 || world_->rank() == from)) {
      gather_from(from);
    }
  }
}

// On rank 0 and on `from`, which may be the same.
void WholeModel::gather_from(int from) {
  const int rank = world_->rank();
  const ModelShare& share = shares_[static_cast<std::size_t>(from)];
  auto* const message = message_.as<float>();
  std::unique_ptr<Operation> transfer;
  if (rank != from) {
    transfer = world_->make_receive(message, message_.bytes(), from, kTag);
  } else if (rank != 0) {
    transfer = world_->make_send(message, message_.bytes(), 0, kTag);
  }
  for (std::size_t i = 0; i < state_->buffers().size(); ++i) {
    float* const whole = whole_.as<float>() + static_cast<long>(i) * table_->flat_size();
    for_each_part(share.owned, message_floats_, [&](IndexRange part) {
      if (rank == from) {
        state_->copy_out(i, part, message);
      }
      if (transfer) {
        transfer->start();
        transfer->wait();
      }
      if (rank == 0) {
        place(share, part, message, whole);
      }
    });
  }
}

// From `message`, which holds elements `part` of the whole model, to the own share.
void WholeModel::fill_own(IndexRange whole_part, std::size_t buffer) {
  const ModelShare& share = shares_[static_cast<std::size_t>(world_->rank())];
  const auto* const message = message_.as<float>();
  for (const IndexRange& range : share.owned) {
    for_each_run(*table_, *share.table, range, [&](long whole, long own, long count) {
      const long begin = std::max(whole, whole_part.begin);
      const long end = std::min(whole + count, whole_part.end);
      if (begin < end) {
        state_->copy_in(
            buffer, {own + begin - whole, own + end - whole}, message + (begin - whole_part.begin));
      }
    });
  }
}

void WholeModel::spread(std::size_t num_buffers) {
  for (std::size_t i = 0; i < num_buffers; ++i) {
    for_each_part({{0, table_->flat_size()}}, message_floats_, [&](IndexRange part) {
      if (world_->rank() == 0) {
        const float* from =
            whole_.as<float>() + static_cast<long>(i) * table_->flat_size() + part.begin;
        std::copy_n(from, part.size(), message_.as<float>());
      }
      world_->broadcast(message_.data(), static_cast<std::size_t>(part.size()) * sizeof(float), 0);
      fill_own(part, i);
    });
  }
}

}  // namespace lockstep
