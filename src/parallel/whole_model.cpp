#include "parallel/whole_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace lockstep {
namespace {

constexpr long kMessageFloats = 1L << 20U;
constexpr int kTag = 0;

// Calls piece(part) for the parts of at most `size` elements of what a share has of a parameter.
template <typename Piece>
void for_each_part(const ModelShare& share, const Parameter& parameter, long size, Piece piece) {
  for (const IndexRange& range : share.owned) {
    const long end = std::min(range.end, parameter.offset + parameter.stored_elements());
    for (long begin = std::max(range.begin, parameter.offset); begin < end; begin += size) {
      piece(IndexRange{begin, std::min(begin + size, end)});
    }
  }
}

// Calls run(canonical, own, count) for the runs of a parameter within elements `part` of a flat buffer.
template <typename Run>
void for_each_run(const Parameter& parameter, IndexRange part, Run run) {
  parameter.for_each_run([&](long canonical, long stored, long count) {
    const long first = parameter.offset + stored;
    const long begin = std::max(first, part.begin);
    const long end = std::min(first + count, part.end);
    if (begin < end) {
      run(canonical + begin - first, begin, end - begin);
    }
  });
}

}  // namespace

WholeModel::WholeModel(const ParameterTable& whole,
                       std::vector<ModelShare> shares,
                       ModelState& state,
                       Communicator& world,
                       bool keeps_copy,
                       Queue& queue)
    : table_(&whole),
      shares_(std::move(shares)),
      state_(&state),
      world_(&world),
      keeps_copy_(keeps_copy),
      message_floats_(std::min(kMessageFloats, whole.flat_size())) {
  LOCKSTEP_CHECK(whole.split().num_blocks == 1);
  if (keeps_copy && world.rank() == 0) {
    copy_ = queue.allocate_for_host(static_cast<std::size_t>(whole.flat_size()) *
                                    state.buffers().size() * sizeof(float));
  }
  message_ = queue.allocate_for_host(static_cast<std::size_t>(message_floats_) * sizeof(float));
}

ModelView WholeModel::view() {
  ModelView view{.table = table_, .states = {}, .access = this};
  for (const Optimizer::State& state : state_->optimizer().states()) {
    view.states.push_back({state.name, nullptr});
  }
  return view;
}

ModelView WholeModel::copy() const {
  LOCKSTEP_CHECK(keeps_copy_);
  ModelView view{.table = table_, .weights = copy_.as<float>(), .states = {}};
  const auto& states = state_->optimizer().states();
  for (std::size_t i = 0; i < states.size(); ++i) {
    view.states.push_back(
        {states[i].name, copy_.as<float>() + static_cast<long>(i + 1) * table_->flat_size()});
  }
  return view;
}

void WholeModel::update_copy() {
  if (!keeps_copy_) {
    return;
  }
  for (std::size_t buffer = 0; buffer < state_->buffers().size(); ++buffer) {
    for (const Parameter& parameter : table_->parameters()) {
      // In one block the user's order is that of the flat buffer.
      float* const to = copy_.as<float>() + static_cast<long>(buffer) * table_->flat_size();
      collect(buffer, parameter, world_->rank() == 0 ? to + parameter.offset : nullptr);
    }
  }
}

WholeModel::Session::~Session() {
  try {
    model_.send({});
  } catch (const Error& failure) {  // the job ends of it, or already does
    log::error("{}", failure.what());
  }
}

void WholeModel::send(const Command& command) {
  Command sent = command;
  world_->broadcast(&sent, sizeof(sent), 0);
}

void WholeModel::serve() {
  for (;;) {
    Command command;
    world_->broadcast(&command, sizeof(command), 0);
    if (command.task == Task::kEnd) {
      return;
    }
    const Parameter& parameter = (*table_)[command.parameter];
    if (command.task == Task::kRead) {
      collect(command.buffer, parameter, nullptr);
    } else {
      distribute(command.buffer, parameter, nullptr);
    }
  }
}

void WholeModel::read(std::size_t buffer, const Parameter& parameter, float* canonical) {
  send({Task::kRead, buffer, table_->index_of(parameter.name)});
  collect(buffer, parameter, canonical);
}

void WholeModel::write(std::size_t buffer, const Parameter& parameter, const float* canonical) {
  send({Task::kWrite, buffer, table_->index_of(parameter.name)});
  distribute(buffer, parameter, canonical);
}

void WholeModel::collect(std::size_t buffer, const Parameter& parameter, float* canonical) {
  for (int from = 0; from < world_->size(); ++from) {
    const ModelShare& share = shares_[static_cast<std::size_t>(from)];
    if (!share.is_needed || (world_->rank() != 0 && world_->rank() != from)) {
      continue;
    }
    if (const Parameter* own = share.table->find(parameter.name)) {  // else of another stage
      collect_from(from, buffer, *own, canonical);
    }
  }
}

// On rank 0 and on `from`, which may be the same.
void WholeModel::collect_from(int from,
                              std::size_t buffer,
                              const Parameter& own,
                              float* canonical) {
  const int rank = world_->rank();
  const ModelShare& share = shares_[static_cast<std::size_t>(from)];
  auto* const message = message_.as<float>();
  for_each_part(share, own, message_floats_, [&](IndexRange part) {
    if (rank == from) {
      state_->copy_out(buffer, part, message);
    }
    const auto bytes = static_cast<std::size_t>(part.size()) * sizeof(float);
    if (rank != from) {
      const auto receive = world_->make_receive(message, bytes, from, kTag);
      receive->start();
      receive->wait();
    } else if (rank != 0) {
      const auto send = world_->make_send(message, bytes, 0, kTag);
      send->start();
      send->wait();
    }
    if (rank == 0) {
      for_each_run(own, part, [&](long canonical_first, long stored, long count) {
        std::copy_n(message + (stored - part.begin), count, canonical + canonical_first);
      });
    }
  });
}

void WholeModel::distribute(std::size_t buffer,
                            const Parameter& parameter,
                            const float* canonical) {
  for (long begin = 0; begin < parameter.num_elements(); begin += message_floats_) {
    const IndexRange part{begin, std::min(begin + message_floats_, parameter.num_elements())};
    if (world_->rank() == 0) {
      std::copy_n(canonical + part.begin, part.size(), message_.as<float>());
    }
    world_->broadcast(message_.data(), static_cast<std::size_t>(part.size()) * sizeof(float), 0);
    fill_own(buffer, parameter.name, part);
  }
}

// From `message`, which holds elements `part` of the user's order, to the own share.
void WholeModel::fill_own(std::size_t buffer, const std::string& name, IndexRange part) {
  const ModelShare& share = shares_[static_cast<std::size_t>(world_->rank())];
  const Parameter* own = share.table->find(name);
  if (own == nullptr) {
    return;
  }
  const auto* const message = message_.as<float>();
  for (const IndexRange& range : share.owned) {
    for_each_run(*own, range, [&](long canonical, long stored, long count) {
      const long begin = std::max(canonical, part.begin);
      const long end = std::min(canonical + count, part.end);
      if (begin < end) {
        state_->copy_in(buffer,
                        {stored + begin - canonical, stored + end - canonical},
                        message + (begin - part.begin));
      }
    });
  }
}

}  // namespace lockstep
