// Weights of which every rank keeps a share, brought together a unit at a time while they are used.
#pragma once

#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "comm/communicator.h"
#include "nn/model.h"
#include "parallel/model_state.h"
#include "parallel/unit_slots.h"

namespace lockstep {

/// ZeRO stage 3 (Rajbhandari et al., 2020): units are gathered into slots, the next one while the present
/// one is used, and their slots taken by others afterwards. What still stands in a slot is not
/// gathered again before the weights change. All ranks of the group make the same passes in the same order.
/// The ranks of a host share the slots: a unit is written into one when all of them have left the unit before.
/// Memory: UnitSlots, once a host.
class WeightSlots {
 public:
  /// `orders[chunk][kind]` is Model::weight_order. The group is of its own: its operations start in the
  /// order of the passes. Collective.
  WeightSlots(const ParameterTable& table,
              DType dtype,
              const std::vector<IndexRange>& buckets,
              std::vector<std::vector<std::vector<int>>> orders,
              Communicator& group,
              const ModelState& state,
              Queue& queue);

  /// The pass that comes next; starts to gather its first unit.
  void begin_pass(int chunk, Model::PassKind kind);
  /// Waits for `unit` and starts to gather the one after it.
  void enter(int unit);
  void leave(int unit);
  /// A pass of other ranks that this one has no micro-batch for; calls on_unit while a unit is there.
  void pass_through(int chunk, Model::PassKind kind, FunctionRef<void(int unit)> on_unit);
  /// The weights have changed.
  void invalidate();

  [[nodiscard]] Weights weights() const { return {*table_, bases_, dtype_}; }
  /// What this rank took.
  [[nodiscard]] std::size_t bytes() const { return takes_memory_ ? memory_.bytes() : 0; }

 private:
  struct Unit {
    int slot = 0;
    void* base = nullptr;
    std::vector<std::unique_ptr<Operation>> gathers;  ///< one a bucket
    bool is_moving = false;
  };

  [[nodiscard]] Unit& unit(int index) { return units_[static_cast<std::size_t>(index)]; }
  void start(int index);
  void complete(Unit& unit);

  const ParameterTable* table_;
  DType dtype_;
  const ModelState* state_;
  Queue* queue_;
  std::vector<std::vector<std::vector<int>>> orders_;
  UnitSlots slots_;
  Memory memory_;
  bool takes_memory_;
  std::vector<Unit> units_;
  std::vector<void*> bases_;
  std::vector<int> in_slot_;  ///< the unit that stands in a slot or is on its way there; -1: none
  std::vector<int> users_;    ///< of each unit: entered and not left
  const std::vector<int>* order_ = nullptr;
  std::size_t position_ = 0;
};

}  // namespace lockstep
