// Error codes of MPI as exceptions.
#pragma once

#include <array>

#include <mpi.h>

#include "base/error.h"

namespace lockstep {

/// Throws Error with MPI's own text when `code` is an error. `what` names the call.
inline void mpi_call(int code, const char* what) {
  if (code != MPI_SUCCESS) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw_error("{} failed: {}", what, text.data());
  }
}

}  // namespace lockstep
