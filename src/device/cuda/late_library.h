// NVIDIA's large libraries are loaded when the first of their functions is called: linked as usual, they would cost
// every run without a GPU a tenth of a second and 200 MiB. A stub of each function that the program calls stands in
// folders named stubs, under the library's own name; the emulated device defines the same functions otherwise.
#pragma once

namespace lockstep {

/// Address of function `name` of the shared library `file`. Throws Error, naming both, when one is not there.
void* find_in_library(const char* file, const char* name);

}  // namespace lockstep

/// Defines `result name(parameters)` as a call of the function in the library; `arguments` names the parameters.
#define LOCKSTEP_LATE_FUNCTION(file, result, name, parameters, arguments)   \
  extern "C" result name parameters {                                       \
    using Function = result(*) parameters;                                  \
    static const auto function =                                            \
        reinterpret_cast<Function>(lockstep::find_in_library(file, #name)); \
    return function arguments;                                              \
  }
