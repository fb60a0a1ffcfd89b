// What a refused request or a failure says.
#pragma once

#include <string>

#include "base/error.h"

namespace lockstep::test {

/// The message of the RequestError that `action` throws; "" when it throws none. Other exceptions
/// pass through and fail the test.
template <typename Action>
std::string request_error_of(Action action) {
  try {
    action();
  } catch (const RequestError& error) {
    return error.what();
  }
  return {};
}

/// The message of the Error that `action` throws; "" when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace lockstep::test
