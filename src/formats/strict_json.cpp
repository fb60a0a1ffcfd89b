#include "formats/strict_json.h"

#include <set>
#include <vector>

#include "base/error.h"

namespace lockstep {

nlohmann::json parse_strict_json(std::string_view text, const std::string& what, int max_depth) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open_keys;
  const auto watch = [&](int depth, Event event, nlohmann::json& parsed) {
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        if (depth >= max_depth) {
          throw_request_error("{}: is nested deeper than {} levels", what, max_depth);
        }
        open_keys.emplace_back();
        break;
      case Event::object_end:
      case Event::array_end:
        open_keys.pop_back();
        break;
      case Event::key:
        if (!open_keys.back().insert(parsed.get<std::string>()).second) {
          throw_request_error(
              "{}: the key '{}' stands twice", what, parsed.get_ref<const std::string&>());
        }
        break;
      case Event::value:
        break;
    }
    return true;
  };
  try {
    nlohmann::json result = nlohmann::json::parse(text.begin(), text.end(), watch);
    if (!result.is_object()) {
      throw_request_error("{}: is not a JSON object", what);
    }
    return result;
  } catch (const nlohmann::json::exception& error) {
    throw_request_error("{}: is not valid JSON: {}", what, error.what());
  }
}

}  // namespace lockstep
