// Checks of the configuration that need nothing but the configuration.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/configuration.h"

namespace lockstep {

/// `train.steps` and `train.epochs` exclude each other: a non-zero one sets the other's default to
/// 0. Throws RequestError when both are set and not 0.
void resolve_length(Configuration& config);

/// Throws RequestError for the first value whose capability does not exist yet.
void check_available(const Configuration& config);

/// Throws RequestError unless the sizes of [model] fit together. For a model that comes from
/// elsewhere (model.init_from) call it once its sizes are filled in.
void check_model(const Configuration& config);

/// All of the above that can be said before files are opened, and the other rules that join several
/// keys. Throws RequestError with the offending setting and what would be valid.
void check_configuration(Configuration& config);

/// Throws RequestError when a key that `command` cannot do without is empty.
void check_needed_keys(Command command, const Configuration& config);

/// What is valid and probably not meant, a line each.
std::vector<std::string> warnings_about(const Configuration& config);

}  // namespace lockstep
