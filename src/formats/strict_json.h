// Untrusted JSON: bounded in size, and refused where the parser alone would guess.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace lockstep {

/// Reads a whole regular file. Refuses, naming the file, what is missing, no regular file (a folder
/// or a pipe), or larger than `max_bytes`.
std::string read_small_file(const std::string& path, std::uint64_t max_bytes);

/// Parses `text`; `name` names the file in messages. Refuses what is no JSON and objects that hold
/// one key twice, of which the parser would silently keep the last.
nlohmann::json parse_strict_json(const std::string& text, const std::string& name);

}  // namespace lockstep
