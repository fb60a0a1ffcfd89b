// Memory for units of parameters that are there one after the other.
#pragma once

#include <vector>

#include "nn/parameter_table.h"

namespace lockstep {

/// Where units stand while they are there. Units with the same parameters (the layers of a model) share
/// two slots, which they take in turns, so that one can be on its way while another is in use; every
/// other has one of its own. What shares a slot has its padding in the same places: it stays zero.
struct UnitSlots {
  std::vector<int> slot_of;     ///< by unit
  std::vector<long> offset_of;  ///< by slot, in elements
  long elements = 0;            ///< of all slots

  [[nodiscard]] int num_slots() const { return static_cast<int>(offset_of.size()); }
};

/// Slots for the units of `table` and, last, its tied input side.
UnitSlots make_unit_slots(const ParameterTable& table);

}  // namespace lockstep
