// The commands of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Command : std::uint8_t {
  kNone,
  kTrain,
  kEvaluate,
  kGenerate,
  kTokenize,
  kCheckpointInspect,
  kCheckpointVerify,
  kCheckpointImport,
  kCheckpointExport,
  kPrune,
  kQuantize,
  kPlan,
  kDoctor,
  kBenchKernels,
  kBenchCollectives,
};

/// How a command is called and what it is for.
struct CommandInfo {
  Command command = Command::kNone;
  std::string_view name;                         ///< first word
  std::string_view action;                       ///< second word; "" without
  std::vector<std::string_view> argument_names;  ///< required, in order
  std::string_view help;
  bool available = true;

  /// "checkpoint inspect"
  [[nodiscard]] std::string full_name() const;
};

/// All commands, in the order of the help text; those of one first word stand together.
const std::vector<CommandInfo>& command_table();

/// The row of `command`, which must not be kNone.
const CommandInfo& info_of(Command command);

}  // namespace lockstep
