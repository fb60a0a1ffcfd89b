// JSON from files nobody vouches for: bounded depth, no doubled keys.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace lockstep {

/// Parses `text`, which must be one JSON object. `what` opens every message: the file and part.
/// Errors: RequestError when the text is not JSON, not an object, nested deeper than `max_depth`
/// (the object itself is depth 1) or has a key twice in one object. Cost: linear in the text.
nlohmann::json parse_strict_json(std::string_view text, const std::string& what, int max_depth);

}  // namespace lockstep
