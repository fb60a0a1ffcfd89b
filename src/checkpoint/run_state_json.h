// RunState as the text of state.json.
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"

namespace lockstep {

std::string to_json_text(const RunState& state);

/// Errors: RequestError naming `source` (a file) when the text is not a run state.
RunState run_state_from_json(const std::string& text, const std::string& source);

}  // namespace lockstep
