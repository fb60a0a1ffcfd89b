// The only file that includes CLI11: it is slow to compile.
#include "cli/command_line.h"

#include <algorithm>
#include <set>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/key_table.h"
#include "cli/nearest.h"

namespace lockstep {
namespace {

// More words than any list has. An unlimited number would make CLI11 cut "[a,b]" at its commas.
constexpr int kMaxListWords = 1 << 20;
constexpr std::string_view kPlainFlags[] = {
    "config", "print-config", "draw-schedule", "json", "ranks-per-host", "help", "version"};

bool is_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--");
}

bool takes_value(const std::string& name) {
  if (const Key* key = find_key(name)) {
    return key->type() != ValueType::kBool;
  }
  return name == "config" || name == "ranks-per-host";
}

std::string what_is_needed(const std::string& name) {
  const Key* key = find_key(name);
  if (key != nullptr) {
    return describe_allowed(*key);
  }
  return name == "config" ? "a file" : "an integer, at least 1";
}

[[noreturn]] void refuse_flag(const std::string& name) {
  std::vector<std::string> known = key_names();
  known.insert(known.end(), std::begin(kPlainFlags), std::end(kPlainFlags));
  throw_request_error(
      "unknown flag --{}; the nearest known flag is --{}", name, nearest_key(name, known));
}

// Checks every flag where messages can still say exactly what was typed, and splits
// "--key=VALUE", because CLI11 takes "--key=" for a flag whose value is the next word.
class FlagScanner {
 public:
  explicit FlagScanner(const std::vector<std::string>& words) : words_(words) {}

  std::vector<std::string> checked() {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (words_[i] == "--") {
        out.insert(out.end(), words_.begin() + static_cast<std::ptrdiff_t>(i), words_.end());
        break;
      }
      if (is_flag(words_[i])) {
        check_flag(i, out);
      } else {
        out.push_back(words_[i]);
      }
    }
    return out;
  }

  // Words right behind a boolean flag without a value, and that flag's key: such a word that is no
  // argument of the command was meant as the value.
  [[nodiscard]] const std::map<std::string, std::string>& behind_bare_flags() const {
    return behind_bare_flags_;
  }

 private:
  void check_flag(std::size_t i, std::vector<std::string>& out) {
    const std::size_t equals = words_[i].find('=');
    const bool has_value = equals != std::string::npos;
    const std::string name = words_[i].substr(2, has_value ? equals - 2 : equals);
    const bool plain =
        std::find(std::begin(kPlainFlags), std::end(kPlainFlags), name) != std::end(kPlainFlags);
    if (!plain && find_key(name) == nullptr) {
      refuse_flag(name);
    }
    if (!seen_.insert(name).second) {
      throw_request_error("--{} is given twice; give it once", name);
    }
    if (plain && !takes_value(name) && has_value) {
      throw_request_error("--{} takes no value", name);
    }
    if (has_value && words_[i].size() > equals + 1) {
      out.push_back(words_[i]);
      return;
    }
    if (!has_value && takes_value(name)) {
      check_value_follows(i, name);
    } else if (!has_value && !plain && !is_boolean_at(i + 1)) {
      // The next word belongs to the command, and CLI11 would take it for the flag's value.
      out.push_back(words_[i] + "=true");
      if (i + 1 < words_.size()) {
        behind_bare_flags_[words_[i + 1]] = name;
      }
      return;
    }
    out.push_back("--" + name);
    if (has_value) {
      out.emplace_back();
    }
  }

  [[nodiscard]] bool is_boolean_at(std::size_t i) const {
    return i < words_.size() && scalar_from_text(ValueType::kBool, words_[i]).has_value();
  }

  void check_value_follows(std::size_t i, const std::string& name) const {
    const bool last = i + 1 == words_.size();
    if (last || is_flag(words_[i + 1]) || words_[i + 1] == "--") {
      throw_request_error("--{} needs a value: {}{}",
                          name,
                          what_is_needed(name),
                          last ? "" : " (one that begins with -- is written --key=VALUE)");
    }
  }

  const std::vector<std::string>& words_;
  std::set<std::string> seen_;
  std::map<std::string, std::string> behind_bare_flags_;
};

// The program as CLI11 sees it. Commands are nested, flags belong to the root and are found from
// every command. All results are read as plain words.
class Grammar {
 public:
  Grammar() {
    app_.set_help_flag();
    app_.allow_extras();
    config_ = app_.add_option("--config")->allow_extra_args(false);
    print_config_ = app_.add_flag("--print-config");
    draw_schedule_ = app_.add_flag("--draw-schedule");
    json_ = app_.add_flag("--json");
    ranks_per_host_ = app_.add_option("--ranks-per-host")->allow_extra_args(false);
    for (const Key& key : key_table()) {
      CLI::Option* option = app_.add_option("--" + key.full_name());
      option->allow_extra_args(false);
      if (is_list(key.type())) {
        option->expected(1, kMaxListWords);
      } else if (key.type() == ValueType::kBool) {
        option->expected(0, 1)->default_str("true");
      }
      flags_.push_back(option);
    }
    for (const CommandInfo& info : command_table()) {
      add_command(info);
    }
  }

  CommandLine parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    try {
      app_.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      throw_request_error("command line: {}", error.what());
    }
    CommandLine line;
    line.print_config = print_config_->count() > 0;
    line.draw_schedule = draw_schedule_->count() > 0;
    line.json = json_->count() > 0;
    if (ranks_per_host_->count() > 0) {
      line.ranks_per_host = ranks_per_host_->results().front();
    }
    if (config_->count() > 0) {
      line.config_file = config_->results().front();
      if (line.config_file.empty()) {
        throw_request_error("--config needs a value: a file");
      }
    }
    for (std::size_t i = 0; i < flags_.size(); ++i) {
      if (flags_[i]->count() > 0) {
        line.words.emplace(key_table()[i].full_name(), flags_[i]->results());
      }
    }
    line.arguments = app_.remaining(true);
    find_command(line);
    return line;
  }

 private:
  void add_command(const CommandInfo& info) {
    const std::string name(info.name);
    const auto [first, is_new] = first_words_.try_emplace(name, nullptr);
    if (is_new) {
      first->second = add_to(app_, name);
    }
    CLI::App* command = first->second;
    if (!info.action.empty()) {
      command = add_to(*command, std::string(info.action));
    }
    commands_.push_back(command);
  }

  static CLI::App* add_to(CLI::App& parent, const std::string& name) {
    CLI::App* command = parent.add_subcommand(name);
    command->set_help_flag();
    command->fallthrough();
    command->allow_extras();
    return command;
  }

  // The row whose words were all given; kNone when no first word was.
  void find_command(CommandLine& line) const {
    std::vector<std::string> given;
    std::string_view name;  // of a command that was given without its action
    std::string actions;
    for (std::size_t i = 0; i < commands_.size(); ++i) {
      const CommandInfo& info = command_table()[i];
      if (commands_[i]->count() > 0) {
        line.command = info.command;
        given.push_back(info.full_name());
      } else if (!info.action.empty() && commands_[i]->get_parent()->count() > 0) {
        name = info.name;
        actions += fmt::format("{}{}", actions.empty() ? "" : " | ", info.action);
      }
    }
    if (given.size() > 1) {
      throw_request_error("one command at a time: found {}", fmt::join(given, " and "));
    }
    if (given.empty() && !actions.empty()) {
      throw_request_error("{} needs an action{}: {}",
                          name,
                          line.arguments.empty() ? "" : " before " + line.arguments.front(),
                          actions);
    }
  }

  CLI::App app_{"", "lockstep"};
  CLI::Option* config_ = nullptr;
  CLI::Option* print_config_ = nullptr;
  CLI::Option* draw_schedule_ = nullptr;
  CLI::Option* json_ = nullptr;
  CLI::Option* ranks_per_host_ = nullptr;
  std::vector<CLI::Option*> flags_;  // in the order of the key table
  std::map<std::string, CLI::App*> first_words_;
  std::vector<CLI::App*> commands_;  // in the order of the command table
};

[[noreturn]] void refuse_command(const std::string& word) {
  std::vector<std::string> names;
  for (const CommandInfo& info : command_table()) {
    names.emplace_back(info.name);
  }
  throw_request_error("unknown command '{}'; the nearest is {} (lockstep --help lists them)",
                      word,
                      nearest_key(word, names));
}

// Refuses words that are neither flags nor arguments of the command.
void check_strays(const CommandLine& line, const FlagScanner& scanner) {
  const std::size_t wanted =
      line.command == Command::kNone ? 0 : info_of(line.command).argument_names.size();
  for (std::size_t i = 0; i < line.arguments.size(); ++i) {
    const std::string& word = line.arguments[i];
    const auto bare = scanner.behind_bare_flags().find(word);
    if (i >= wanted && bare != scanner.behind_bare_flags().end()) {
      refuse_value(*find_key(bare->second), "--" + bare->second, word);
    }
    if (word.size() > 1 && word.starts_with("-") && word != "--") {
      const std::size_t begin = std::min(word.find_first_not_of('-'), word.size());
      throw_request_error("unknown flag {}; the nearest known flag is --{}",
                          word,
                          nearest_key(word.substr(begin), key_names()));
    }
  }
}

// Flags that belong to single commands.
void check_own_flags(const CommandLine& line) {
  const bool plan = line.command == Command::kPlan;
  if (line.draw_schedule && !plan) {
    throw_request_error("--draw-schedule belongs to the command plan");
  }
  if (line.ranks_per_host && !plan) {
    throw_request_error("--ranks-per-host belongs to the command plan");
  }
  if (line.json && !plan && line.command != Command::kBenchKernels) {
    throw_request_error("--json belongs to the commands plan and bench kernels");
  }
  if (line.draw_schedule && (line.json || line.ranks_per_host)) {
    throw_request_error("--{} does not go with --draw-schedule",
                        line.json ? "json" : "ranks-per-host");
  }
}

void check_arguments(const CommandLine& line) {
  check_own_flags(line);
  if (line.command == Command::kNone) {
    if (!line.arguments.empty()) {
      refuse_command(line.arguments.front());
    }
    if (!line.print_config) {
      throw_request_error("no command given; lockstep --help lists them");
    }
    return;
  }
  const CommandInfo& info = info_of(line.command);
  if (line.arguments.size() < info.argument_names.size()) {
    throw_request_error("{} needs {}", info.full_name(), fmt::join(info.argument_names, " and "));
  }
  if (line.arguments.size() > info.argument_names.size()) {
    throw_request_error("{}: unexpected argument '{}'",
                        info.full_name(),
                        line.arguments[info.argument_names.size()]);
  }
}

}  // namespace

CommandLine split_command_line(const std::vector<std::string>& words) {
  CommandLine line;
  const auto last = std::find(words.begin(), words.end(), "--");
  const auto given = [&](const char* flag) { return std::find(words.begin(), last, flag) != last; };
  line.help = given("--help") || given("-h");
  line.version = given("--version");
  if (line.help || line.version) {
    return line;
  }
  FlagScanner scanner(words);
  line = Grammar().parse(scanner.checked());
  check_strays(line, scanner);
  check_arguments(line);
  return line;
}

}  // namespace lockstep
