// How the emulated device tells what a real one would not have done, or not always.
#pragma once

#include <string>

#include <spdlog/fmt/fmt.h>

namespace lockstep::emulated {

/// Status of a program that the emulated device ended.
inline constexpr int kFaultStatus = 86;

/// Prints what is wrong, where in the source (`code` is an address in the program, or null) and in which kernel, block and
/// thread or other operation, and ends the program at once with kFaultStatus.
[[noreturn]] void report_fault(const std::string& what, const void* code);

template <typename... Args>
[[noreturn]] void fault(fmt::format_string<Args...> format, Args&&... args) {
  report_fault(fmt::format(format, std::forward<Args>(args)...), nullptr);
}

template <typename... Args>
[[noreturn]] void fault_at(const void* code, fmt::format_string<Args...> format, Args&&... args) {
  report_fault(fmt::format(format, std::forward<Args>(args)...), code);
}

/// "function at file:line" of an address in the program, as far as its debug information tells.
std::string source_place(const void* code);
/// The name of the function that starts at `code`.
std::string function_name(const void* code);

}  // namespace lockstep::emulated
