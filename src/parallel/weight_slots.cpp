#include "parallel/weight_slots.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/reduce.h"

namespace lockstep {
WeightSlots::WeightSlots(const ParameterTable& table,
                         DType dtype,
                         const std::vector<IndexRange>& buckets,
                         std::vector<std::vector<std::vector<int>>> orders,
                         Communicator& group,
                         const ModelState& state,
                         Queue& queue)
    : table_(&table),
      dtype_(dtype),
      state_(&state),
      queue_(&queue),
      orders_(std::move(orders)),
      slots_(make_unit_slots(table)),
      memory_(group.allocate_shared(bytes_of(slots_.elements - table.tied_size(), dtype))),
      takes_memory_(group.takes_shared()),
      units_(table.units().size()),
      in_slot_(static_cast<std::size_t>(slots_.num_slots()), -1),
      users_(table.units().size(), 0) {
  for (std::size_t index = 0; index < units_.size(); ++index) {
    Unit& own = units_[index];
    own.slot = slots_.slot_of[index];
    own.base =
        memory_.data() + bytes_of(slots_.offset_of[static_cast<std::size_t>(own.slot)], dtype);
    bases_.push_back(own.base);
    const IndexRange range = table.units()[index];
    for (const IndexRange& bucket : buckets) {
      const IndexRange part{bucket.begin - table.tied_size(), bucket.end - table.tied_size()};
      if (part.begin < range.begin || part.begin >= range.end) {
        continue;
      }
      auto* const data =
          static_cast<std::byte*>(own.base) + bytes_of(part.begin - range.begin, dtype);
      own.gathers.push_back(group.make_all_gather(
          data, bytes_of(part.size(), dtype), bytes_of(kChunkElements, dtype), [this, part, data] {
            state_->write_owned(part, data);
          }));
    }
  }
}

void WeightSlots::start(int index) {
  Unit& own = unit(index);
  int& occupant = in_slot_[static_cast<std::size_t>(own.slot)];
  if (occupant == index || (occupant >= 0 && users_[static_cast<std::size_t>(occupant)] > 0)) {
    return;  // it is there, or has to wait until its slot is left
  }
  if (occupant >= 0) {
    complete(unit(occupant));
  }
  occupant = index;
  for (const auto& gather : own.gathers) {
    gather->start();
  }
  own.is_moving = true;
}

void WeightSlots::complete(Unit& unit) {
  if (unit.is_moving) {
    for (const auto& gather : unit.gathers) {
      gather->wait();
    }
    unit.is_moving = false;
  }
}

void WeightSlots::begin_pass(int chunk, Model::PassKind kind) {
  order_ = &orders_[static_cast<std::size_t>(chunk)][static_cast<std::size_t>(kind)];
  position_ = 0;
  if (!order_->empty()) {
    start(order_->front());
  }
}

void WeightSlots::enter(int unit_index) {
  LOCKSTEP_CHECK(position_ < order_->size() && (*order_)[position_] == unit_index);
  start(unit_index);
  complete(unit(unit_index));
  LOCKSTEP_CHECK(in_slot_[static_cast<std::size_t>(unit(unit_index).slot)] == unit_index);
  ++users_[static_cast<std::size_t>(unit_index)];
  ++position_;
  if (position_ < order_->size()) {
    start((*order_)[position_]);
  }
}

void WeightSlots::leave(int unit_index) {
  --users_[static_cast<std::size_t>(unit_index)];
}

void WeightSlots::pass_through(int chunk,
                               Model::PassKind kind,
                               FunctionRef<void(int unit)> on_unit) {
  begin_pass(chunk, kind);
  for (const int index : *order_) {
    enter(index);
    on_unit(index);
    leave(index);
  }
}

void WeightSlots::invalidate() {
  for (Unit& own : units_) {
    complete(own);
  }
  std::fill(in_slot_.begin(), in_slot_.end(), -1);
}

}  // namespace lockstep
