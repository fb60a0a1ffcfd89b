// The dtype names of the safetensors format.
#pragma once

#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace lockstep {

/// A dtype of the format: its size, and ours if there is one.
struct SafetensorsDType {
  std::string_view name;
  std::size_t bytes = 0;
  std::optional<DType> dtype;
};

/// The entry of that name, or nullptr for a dtype that the format does not have (or that packs
/// elements into parts of a byte).
const SafetensorsDType* find_safetensors_dtype(std::string_view name);

/// The format's name of one of our dtypes.
std::string_view safetensors_name_of(DType dtype);

}  // namespace lockstep
