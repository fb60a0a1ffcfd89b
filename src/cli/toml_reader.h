// Reads configuration files, and lists in the notation of such files.
#pragma once

#include <optional>
#include <string>

#include "cli/configuration.h"
#include "cli/value.h"

namespace lockstep {

/// Sets every key that the file sets. Throws RequestError with "FILE:LINE:" for the first mistake
/// (not TOML, unknown section or key, wrong type, value that is not allowed), with the nearest
/// known key; without a line when the file cannot be read or is no regular file.
void apply_toml_file(Configuration& config, const std::string& path);

/// The same for text; `name` stands for the file in messages and origins.
void apply_toml(Configuration& config, const std::string& text, const std::string& name);

/// Reads `text`, "[784, 10]", as a list of `type`; nothing when it is not one.
std::optional<Value> list_from_toml(ValueType type, const std::string& text);

}  // namespace lockstep
