// JSON from files nobody vouches for: bounded depth, no doubled keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace lockstep {

/// Reads a whole regular file. Refuses, naming the file, what is missing, no regular file (a folder
/// or a pipe), or larger than `max_bytes`.
std::string read_small_file(const std::string& path, std::uint64_t max_bytes);

/// Nesting that no file of ours or of others' programs reaches.
inline constexpr int kMaxJsonDepth = 64;

/// Parses `text`, which must be one JSON object. `what` opens every message: the file and part.
/// Errors: RequestError when the text is not JSON, not an object, nested deeper than `max_depth`
/// (the object itself is depth 1) or has a key twice in one object. Cost: linear in the text.
nlohmann::json parse_strict_json(std::string_view text,
                                 const std::string& what,
                                 int max_depth = kMaxJsonDepth);

}  // namespace lockstep
