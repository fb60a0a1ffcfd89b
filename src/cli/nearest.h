// The known name that is nearest to a misspelt one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal
/// string alignment). Time and memory: the product of the lengths; meant for short names.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// What another program calls one of our keys.
struct OtherName {
  std::string_view name;
  std::string_view key;  ///< "section.key"
};

/// Those that nearest_key() knows.
std::span<const OtherName> other_names();

/// The candidate that is nearest to `name`, the first of equals; "" without candidates. Only the
/// first 128 bytes of `name` are looked at.
///
/// Candidates are "section.key". Near is what differs by few edits, by abbreviated, missing or
/// surplus words ("n_layer" and "num_layers"), or by the section; and what other programs call it
/// ("learning_rate" and "optimizer.lr").
std::string nearest_key(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
