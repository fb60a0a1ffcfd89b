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

nlohmann::json parse_strict_json(const std::string& text, const std::string& name) {
  using Json = nlohmann::json;
  std::vector<std::unordered_set<std::string>> keys_of_open_objects;
  const auto watch_keys = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      keys_of_open_objects.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_of_open_objects.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_of_open_objects.back().insert(key).second) {
        throw_request_error("{}: the key '{}' stands twice in one object", name, key);
      }
    }
    return true;
  };
  try {
    return Json::parse(text, watch_keys);
  } catch (const Json::exception& error) {
    throw_request_error("{}: not valid JSON: {}", name, error.what());
  }
}

}  // namespace lockstep
