#include "formats/strict_json.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <unordered_set>
#include <vector>

#include "base/error.h"

namespace lockstep {

std::string read_small_file(const std::string& path, std::uint64_t max_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw_request_error("{}: no such file", path);
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw_request_error("{}: not a regular file", path);
  }
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) {
    throw_request_error("{}: {}", path, error.message());
  }
  if (bytes > max_bytes) {
    throw_request_error("{}: {} bytes, at most {} are accepted", path, bytes, max_bytes);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw_request_error("{}: cannot be opened for reading", path);
  }
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (static_cast<std::uint64_t>(file.gcount()) != bytes) {
    throw_error("{}: read {} of {} bytes", path, file.gcount(), bytes);
  }
  return text;
}

nlohmann::json parse_strict_json(std::string_view text, const std::string& what, int max_depth) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::unordered_set<std::string>> open_keys;
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
          throw_request_error("{}: the key '{}' stands twice in one object",
                              what,
                              parsed.get_ref<const std::string&>());
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
