// The texts of --help and --version.
#pragma once

#include <string>

namespace lockstep {

/// Commands, general flags, and every key by section with its default.
std::string help_text();

/// Version, commit, build, device backends, compiler, MPI and NCCL, a line each. `mpi_library` is
/// what the MPI library says of itself; only its first line is used.
std::string version_text(const std::string& mpi_library);

}  // namespace lockstep
