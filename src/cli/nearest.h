// The known name that is nearest to a misspelt one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment). Time and memory: the product of the lengths; meant for short names.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the least distance to `name`, the first of equals; "" without candidates.
/// Only the first 128 bytes of `name` are looked at.
///
/// Candidates are "section.key": a right key in a wrong section, or without one, is one step away.
std::string nearest_key(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
