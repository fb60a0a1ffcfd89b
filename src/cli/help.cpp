#include "cli/help.h"

#include <spdlog/fmt/fmt.h>

#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/key_table.h"
#include "comm/accelerator.h"

namespace lockstep {
namespace {

// "INT", "a|b": what stands behind the flag.
std::string placeholder(const Key& key) {
  if (!key.allowed.choices.empty()) {
    return fmt::format("{}", fmt::join(key.allowed.choices, "|"));
  }
  switch (key.type()) {
    case ValueType::kBool:
      return "true|false";
    case ValueType::kInteger:
      return "INTEGER";
    case ValueType::kNumber:
      return "NUMBER";
    case ValueType::kText:
      return "TEXT";
    case ValueType::kIntegers:
      return "INTEGER...";
    case ValueType::kTexts:
      return "TEXT...";
  }
  return {};
}

std::string key_line(const Key& key) {
  std::string line = fmt::format("  {:<38} {} [{}]",
                                 fmt::format("--{} {}", key.full_name(), placeholder(key)),
                                 key.help,
                                 to_toml(key.default_value));
  if (const NotYetAvailable* entry = restriction_of(key)) {
    line += entry->available.empty()
                ? " (other values not yet available)"
                : fmt::format(" (available: {})", fmt::join(entry->available, ", "));
  }
  return line + "\n";
}

std::string command_line_of(const CommandInfo& info) {
  const std::string usage =
      fmt::format("{} {}", info.full_name(), fmt::join(info.argument_names, " "));
  return fmt::format(
      "  {:<32} {}{}\n", usage, info.help, info.available ? "" : " (not yet available)");
}

}  // namespace

std::string help_text() {
  std::string text =
      "Usage: lockstep COMMAND [--config FILE.toml] [--section.key VALUE ...]\n"
      "Start it with mpirun, srun or scripts/launch for more than one rank.\n\nCommands:\n";
  for (const CommandInfo& info : command_table()) {
    text += command_line_of(info);
  }
  text +=
      "\nFlags:\n"
      "  --config FILE                          read keys from a TOML file; flags win over it\n"
      "  --print-config                         print the effective configuration and exit\n"
      "  --draw-schedule                        plan: draw the schedule of a pipeline instead\n"
      "  --ranks-per-host N                     plan: neighbouring ranks a host [all on one]\n"
      "  --json                                 plan, bench kernels: one JSON object, in base "
      "units\n"
      "  --help, -h                             print this and exit\n"
      "  --version                              print version and build and exit\n"
      "\nKeys, as flags and in the sections of the file, with their defaults:\n";
  std::string_view section;
  for (const Key& key : key_table()) {
    if (key.section != section) {
      section = key.section;
      text += fmt::format("\n[{}]\n", section);
    }
    text += key_line(key);
  }
  return text;
}

std::string version_text(const std::string& mpi_library) {
  const BuildInfo info = build_info();
  return fmt::format(
      "lockstep {}\ncommit: {}\nbuild: {} ({})\ndevices: {}\nCUDA at build: {}\n"
      "compiler: {}\nMPI: {}\n",
      info.version,
      info.commit,
      info.build_type,
      info.options,
      accelerator() == nullptr ? "cpu" : "cpu, cuda (" + accelerator()->versions() + ")",
      info.cuda,
      info.compiler,
      mpi_library.substr(0, mpi_library.find('\n')));
}

}  // namespace lockstep
