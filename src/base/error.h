// Errors that reach the user, and checks of our own assumptions.
#pragma once

#include <stdexcept>
#include <string>

#include <spdlog/fmt/fmt.h>

namespace lockstep {

/// Something failed while running: a library call, a full disk, a lost rank. `main` exits with 3.
/// The message says what was found, what was expected and what to do, in one line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The request was wrong: bad configuration or malformed input. `main` exits with 2, and nothing
/// may have been written or started. The message names the key, flag or file (and position).
class RequestError : public Error {
 public:
  using Error::Error;
};

/// throw_error("mpi: {} of {} ranks answered", n, size)
template <typename... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// throw_request_error("{}: {} bytes, expected {}", path, found, expected)
template <typename... Args>
[[noreturn]] void throw_request_error(fmt::format_string<Args...> format, Args&&... args) {
  throw RequestError(fmt::format(format, std::forward<Args>(args)...));
}

/// Reports a broken assumption of our own (a bug, not bad input) and throws std::logic_error.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace lockstep

/// Asserts an assumption of our own, in every build type. Never for input: throw an Error for that.
#define LOCKSTEP_CHECK(condition)                               \
  do {                                                          \
    if (!(condition)) {                                         \
      ::lockstep::check_failed(#condition, __FILE__, __LINE__); \
    }                                                           \
  } while (false)
