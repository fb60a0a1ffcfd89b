#include "cli/command.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::string CommandInfo::full_name() const {
  return action.empty() ? std::string(name) : fmt::format("{} {}", name, action);
}

const std::vector<CommandInfo>& command_table() {
  using C = Command;
  static const std::vector<CommandInfo> rows = {
      {C::kTrain, "train", "", {}, "train, or resume from the newest complete checkpoint", true},
      {C::kEvaluate, "evaluate", "", {}, "loss, perplexity and accuracy of a model", true},
      {C::kGenerate, "generate", "", {}, "text from prompts", false},
      {C::kTokenize, "tokenize", "", {}, "text files to a token file", true},
      {C::kCheckpointInspect, "checkpoint", "inspect", {"SOURCE"}, "what a checkpoint holds", true},
      {C::kCheckpointVerify, "checkpoint", "verify", {"SOURCE"}, "check every checksum", true},
      {C::kCheckpointImport,
       "checkpoint",
       "import",
       {"SOURCE", "DEST"},
       "a Hugging Face folder or GGUF file to a checkpoint",
       false},
      {C::kCheckpointExport,
       "checkpoint",
       "export",
       {"SOURCE", "DEST"},
       "a checkpoint to a Hugging Face folder",
       true},
      {C::kPrune, "prune", "", {}, "a sparse model from a checkpoint", false},
      {C::kQuantize, "quantize", "", {}, "a smaller model from a checkpoint", false},
      {C::kPlan, "plan", "", {}, "memory of a configuration's ranks, or its pipeline drawn", true},
      {C::kDoctor, "doctor", "", {}, "what is here, and whether it works", false},
      {C::kBenchKernels,
       "bench",
       "kernels",
       {},
       "speed of every kernel, beside the device's limits",
       true},
      {C::kBenchCollectives,
       "bench",
       "collectives",
       {},
       "speed of communication beside its limits",
       false},
  };
  return rows;
}

const CommandInfo& info_of(Command command) {
  const auto& rows = command_table();
  const auto found = std::find_if(rows.begin(), rows.end(), [command](const CommandInfo& info) {
    return info.command == command;
  });
  LOCKSTEP_CHECK(found != rows.end());
  return *found;
}

}  // namespace lockstep
