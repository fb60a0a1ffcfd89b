#include "parallel/unit_slots.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

namespace lockstep {
namespace {

// Equal for units whose parameters have the same sizes and places.
using Layout = std::vector<std::array<long, 5>>;

std::vector<Layout> layouts_of(const ParameterTable& table) {
  std::vector<Layout> layouts(table.units().size());
  for (const Parameter& parameter : table.parameters()) {
    const auto unit = static_cast<std::size_t>(parameter.unit);
    layouts[unit].push_back({parameter.offset - table.units()[unit].begin,
                             parameter.num_blocks,
                             parameter.block_rows,
                             parameter.block_cols,
                             parameter.block_stride});
  }
  return layouts;
}

}  // namespace

UnitSlots make_unit_slots(const ParameterTable& table) {
  UnitSlots slots;
  const auto add_slot = [&slots](long size) {
    slots.offset_of.push_back(slots.elements);
    slots.elements += size;
    return slots.num_slots() - 1;
  };
  std::map<Layout, std::vector<int>> slots_of_layout;
  std::map<Layout, std::size_t> turns;
  const std::vector<Layout> layouts = layouts_of(table);
  for (std::size_t unit = 0; unit < layouts.size(); ++unit) {
    std::vector<int>& shared = slots_of_layout[layouts[unit]];
    if (shared.size() < 2) {
      shared.push_back(add_slot(table.units()[unit].size()));
    }
    slots.slot_of.push_back(shared[turns[layouts[unit]]++ % shared.size()]);
  }
  slots.slot_of.push_back(add_slot(table.tied_size()));
  return slots;
}

}  // namespace lockstep
