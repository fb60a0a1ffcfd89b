#include "cli/toml_reader.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include <toml++/toml.h>

#include "base/error.h"
#include "cli/key_table.h"
#include "cli/nearest.h"

namespace lockstep {
namespace {

// No configuration comes near it; a wrong file (weights, a data set) often does.
constexpr std::uintmax_t kMaxFileBytes = 4U << 20U;

// One entry of the file: a value that is no table, or an empty table.
struct Leaf {
  std::string name;
  toml::source_region where;
  const toml::node* node = nullptr;
};

// A key as in messages: quoted when it could break their one line. No known key needs quotes.
std::string shown_key(std::string_view key) {
  constexpr std::string_view kBare =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  const bool bare = !key.empty() && key.find_first_not_of(kBare) == std::string_view::npos;
  return bare ? std::string(key) : to_toml(Value(std::string(key)));
}

void collect_leaves(const toml::table& table,
                    const std::string& prefix,
                    std::vector<Leaf>& leaves) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + shown_key(key.str());
    const toml::table* inner = node.as_table();
    // An inline table is the value of a key, unless it is written where a section belongs.
    const bool value_of_key = find_key(name) != nullptr;
    if (inner != nullptr && !value_of_key && (!inner->empty() || is_section(name))) {
      collect_leaves(*inner, name + ".", leaves);
    } else {
      leaves.push_back({name, key.source(), &node});
    }
  }
}

bool is_scalar(const toml::node& node) {
  return !node.is_table() && !node.is_array();
}

std::string spelled(const toml::node& node) {
  if (node.is_table()) {
    return "a table";
  }
  if (const auto* text = node.as_string()) {
    return is_plain_utf8(text->get()) ? to_toml(Value(text->get())) : "text with a zero byte";
  }
  std::ostringstream out;
  node.visit([&out](const auto& value) { out << value; });
  return out.str();
}

std::optional<Value> scalar_from_node(ValueType type, const toml::node& node) {
  if (type == ValueType::kBool && node.is_boolean()) {
    return node.as_boolean()->get();
  }
  if ((type == ValueType::kInteger || type == ValueType::kIntegers) && node.is_integer()) {
    return static_cast<long>(node.as_integer()->get());
  }
  if (type == ValueType::kNumber && node.is_number()) {
    return node.is_integer() ? static_cast<double>(node.as_integer()->get())
                             : node.as_floating_point()->get();
  }
  const bool text = type == ValueType::kText || type == ValueType::kTexts;
  if (text && node.is_string() && is_plain_utf8(node.as_string()->get())) {
    return node.as_string()->get();
  }
  return std::nullopt;
}

// The elements of `array`, or the first one that is no `T`.
template <typename T>
std::optional<Value> list_from_array(ValueType type,
                                     const toml::array& array,
                                     const toml::node*& bad) {
  std::vector<T> values;
  for (const toml::node& element : array) {
    std::optional<Value> value = scalar_from_node(type, element);
    if (!value) {
      bad = &element;
      return std::nullopt;
    }
    values.push_back(std::get<T>(std::move(*value)));
  }
  return values;
}

std::optional<Value> value_from_node(ValueType type,
                                     const toml::node& node,
                                     const toml::node*& bad) {
  bad = &node;
  if (!is_list(type)) {
    return scalar_from_node(type, node);
  }
  if (!node.is_array()) {
    return std::nullopt;
  }
  return type == ValueType::kIntegers ? list_from_array<long>(type, *node.as_array(), bad)
                                      : list_from_array<std::string>(type, *node.as_array(), bad);
}

std::string position(const std::string& file, const toml::source_region& where) {
  return fmt::format("{}:{}: ", file, where.begin.line);
}

[[noreturn]] void refuse_name(const Leaf& leaf, const std::string& at) {
  const std::string nearest = nearest_key(leaf.name, key_names());
  if (is_section(leaf.name)) {
    throw_request_error(
        "{}{} is a section: write [{}] and its keys below it", at, leaf.name, leaf.name);
  }
  const std::string section = leaf.name.substr(0, leaf.name.rfind('.'));
  if (leaf.node->is_table() || (section != leaf.name && !is_section(section))) {
    const std::string unknown = leaf.node->is_table() ? leaf.name : section;
    throw_request_error("{}unknown section [{}] (key '{}'); the nearest known key is {}",
                        at,
                        unknown,
                        leaf.name,
                        nearest);
  }
  throw_request_error("{}unknown key '{}'; the nearest known key is {}", at, leaf.name, nearest);
}

void apply_leaf(Configuration& config, const Leaf& leaf, const std::string& file) {
  const std::string at = position(file, leaf.where);
  const Key* key = find_key(leaf.name);
  if (key == nullptr) {
    refuse_name(leaf, at);
  }
  const toml::node* bad = nullptr;
  const std::optional<Value> value = value_from_node(key->type(), *leaf.node, bad);
  if (!value) {
    refuse_value(*key,
                 position(file, bad->source()) + leaf.name,
                 is_scalar(*bad) || bad->is_table() ? spelled(*bad) : "a list");
  }
  set_value(config, *key, *value, at + leaf.name);
}

std::string read_text(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw_request_error(
        "{}: cannot read the configuration: {}", path, error ? error.message() : "no such file");
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw_request_error("{}: the configuration must be a regular file, and this is {}",
                        path,
                        std::filesystem::is_directory(status) ? "a directory" : "none");
  }
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxFileBytes) {
    throw_request_error(
        "{}: {} bytes are too many for a configuration (at most {})", path, bytes, kMaxFileBytes);
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open() || file.bad()) {
    throw_request_error(
        "{}: cannot read the configuration: {}", path, std::generic_category().message(errno));
  }
  return text.str();
}

}  // namespace

void apply_toml_file(Configuration& config, const std::string& path) {
  apply_toml(config, read_text(path), path);
}

void apply_toml(Configuration& config, const std::string& text, const std::string& name) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw_request_error("{}not TOML: {}", position(name, error.source()), error.description());
  }
  std::vector<Leaf> leaves;
  collect_leaves(root, "", leaves);
  // The library sorts keys by name; users read from the top.
  std::stable_sort(leaves.begin(), leaves.end(), [](const Leaf& a, const Leaf& b) {
    return a.where.begin < b.where.begin;
  });
  for (const Leaf& leaf : leaves) {
    apply_leaf(config, leaf, name);
  }
}

std::optional<Value> list_from_toml(ValueType type, const std::string& text) {
  try {
    const toml::table root = toml::parse("list = " + text);
    const toml::node* bad = nullptr;
    return root.size() == 1 ? value_from_node(type, *root.get("list"), bad) : std::nullopt;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace lockstep
