// Splits the words of a command line into command, flags and arguments.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace lockstep {

/// A command line, split and not yet interpreted.
struct CommandLine {
  bool help = false;
  bool version = false;
  bool print_config = false;
  bool draw_schedule = false;  ///< of plan, as ranks_per_host
  bool json = false;           ///< of plan and bench kernels
  std::optional<std::string> ranks_per_host;
  std::string config_file;  ///< "": none
  Command command = Command::kNone;
  std::vector<std::string> arguments;
  /// Of every key with a flag, its words: one, or several for a list.
  std::map<std::string, std::vector<std::string>> words;
};

/// Splits `words` (without the program's name). Flags may stand before or after the command, as
/// `--section.key VALUE` or `--section.key=VALUE`; a boolean without a value is true; a list takes
/// every word up to the next flag. With --help or --version nothing else is looked at.
/// Throws RequestError for unknown commands and flags, flags given twice or without a value, and
/// a wrong number of arguments.
CommandLine split_command_line(const std::vector<std::string>& words);

}  // namespace lockstep
