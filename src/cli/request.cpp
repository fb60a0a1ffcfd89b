#include "cli/request.h"

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/key_table.h"
#include "cli/toml_reader.h"
#include "cli/validate.h"

namespace lockstep {
namespace {

std::string shown(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "" : " ";
    text += is_plain_utf8(word) ? word : "text that is not UTF-8";
  }
  return text;
}

template <typename T>
std::optional<Value> list_from_words(ValueType type, const std::vector<std::string>& words) {
  const std::string& first = words.front();
  if (words.size() == 1 && first.starts_with('[') && first.ends_with(']')) {
    return is_plain_utf8(first) ? list_from_toml(type, first) : std::nullopt;
  }
  std::vector<T> values;
  for (const std::string& word : words) {
    std::optional<Value> value = scalar_from_text(type, word);
    if (!value) {
      return std::nullopt;
    }
    values.push_back(std::get<T>(std::move(*value)));
  }
  return values;
}

std::optional<Value> value_from_words(ValueType type, const std::vector<std::string>& words) {
  switch (type) {
    case ValueType::kIntegers:
      return list_from_words<long>(type, words);
    case ValueType::kTexts:
      return list_from_words<std::string>(type, words);
    default:
      return scalar_from_text(type, words.front());
  }
}

long read_ranks_per_host(const std::optional<std::string>& word) {
  if (!word) {
    return 0;
  }
  const std::optional<Value> value = scalar_from_text(ValueType::kInteger, *word);
  if (!value || std::get<long>(*value) < 1) {
    throw_request_error("--ranks-per-host = {}: expected an integer, at least 1", shown({*word}));
  }
  return std::get<long>(*value);
}

void apply_flags(Configuration& config, const CommandLine& line) {
  for (const auto& [name, words] : line.words) {
    const Key& key = *find_key(name);
    const std::string origin = "--" + name;
    const std::optional<Value> value = value_from_words(key.type(), words);
    if (!value) {
      refuse_value(key, origin, shown(words));
    }
    set_value(config, key, *value, origin);
  }
}

}  // namespace

Request parse_request(int argc, const char* const* argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    words.emplace_back(argv[i]);
  }
  const CommandLine line = split_command_line(words);
  Request request;
  if (line.help || line.version) {
    request.kind = line.help ? Request::Kind::kHelp : Request::Kind::kVersion;
    return request;
  }
  if (line.command != Command::kNone && !info_of(line.command).available) {
    throw_request_error("the command {} is not yet available", info_of(line.command).full_name());
  }
  request.kind = line.print_config ? Request::Kind::kPrintConfig : Request::Kind::kCommand;
  request.command = line.command;
  request.arguments = line.arguments;
  request.draw_schedule = line.draw_schedule;
  request.json = line.json;
  request.ranks_per_host = read_ranks_per_host(line.ranks_per_host);
  if (!line.config_file.empty()) {
    apply_toml_file(request.config, line.config_file);
  }
  apply_flags(request.config, line);
  check_configuration(request.config);
  if (request.kind == Request::Kind::kCommand) {
    check_needed_keys(request.command, request.config);
  }
  request.warnings = warnings_about(request.config);
  return request;
}

}  // namespace lockstep
