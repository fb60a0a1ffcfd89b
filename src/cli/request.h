// What the user asks for: the command line and the configuration file, read and checked.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/configuration.h"

namespace lockstep {

struct Request {
  enum class Kind { kCommand, kPrintConfig, kHelp, kVersion };

  Kind kind = Kind::kCommand;
  Command command = Command::kNone;    ///< kNone only where kind is not kCommand
  Configuration config;                ///< default < file < command line; not filled for help
  std::vector<std::string> arguments;  ///< SOURCE and DEST of `checkpoint`
  std::vector<std::string> warnings;   ///< lines for the log
  bool draw_schedule = false;          ///< of `plan`, as ranks_per_host
  bool json = false;                   ///< of `plan` and `bench kernels`
  long ranks_per_host = 0;             ///< 0: all ranks on one host
};

/// Reads a command line (argv[0] is the program) and the file that --config names. Touches nothing
/// else, needs no MPI, and takes a few milliseconds. Values are checked against the key table and
/// against each other (cli/validate.h); files and the number of ranks are not.
/// Throws RequestError: unknown command, flag or key (with the nearest known one), a flag given
/// twice or without its value, a value that is not allowed, or what is not yet available.
Request parse_request(int argc, const char* const* argv);

}  // namespace lockstep
