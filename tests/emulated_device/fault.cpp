#include "emulated_device/fault.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>
#include <unistd.h>

#include "emulated_device/kernel_run.h"
#include "emulated_device/operations.h"

namespace lockstep::emulated {
namespace {

// The lines that addr2line prints about an address.
std::string ask_addr2line(const void* code, const char* options) {
  Dl_info info{};
  if (code == nullptr || dladdr(code, &info) == 0) {
    return "";
  }
  const auto offset =
      reinterpret_cast<std::uintptr_t>(code) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  char path[4096] = {};
  const ssize_t length = readlink("/proc/self/exe", static_cast<char*>(path), sizeof path - 1);
  if (length <= 0) {
    return "";
  }
  const std::string command = fmt::format(
      "addr2line {} -e '{}' {:#x} 2>/dev/null", options, static_cast<char*>(path), offset);
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return "";
  }
  std::string text;
  char line[1024];
  while (std::fgets(static_cast<char*>(line), sizeof line, pipe) != nullptr) {
    text += static_cast<char*>(line);
  }
  pclose(pipe);
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

}  // namespace

std::string source_place(const void* code) {
  // Calls return behind themselves: one byte back is the call.
  return ask_addr2line(static_cast<const char*>(code) - 1, "-Cfpis");
}

std::string function_name(const void* code) {
  const std::string text = ask_addr2line(code, "-Cf");
  const std::string name = text.substr(0, text.find('\n'));
  return name.empty() || name == "??" ? fmt::format("function {}", code) : name;
}

void report_fault(const std::string& what, const void* code) {
  static bool reporting = false;
  if (!reporting) {  // a second fault while the first is being told
    reporting = true;
    std::string text = fmt::format("emulated device: FAULT: {}\n", what);
    const std::string where = describe_running_kernel();
    const std::string during = where.empty() ? describe_current_operation() : where;
    if (!during.empty()) {
      text += fmt::format("  in {}\n", during);
    }
    const std::string place = code == nullptr ? "" : source_place(code);
    if (!place.empty()) {
      text += fmt::format("  at {}\n", place);
    }
    text += fmt::format("  seed {}, process {}\n",
                        std::getenv("LOCKSTEP_EMULATED_SEED") != nullptr
                            ? std::getenv("LOCKSTEP_EMULATED_SEED")
                            : "1",
                        getpid());
    std::fputs(text.c_str(), stderr);
    std::fflush(nullptr);
  }
  _exit(kFaultStatus);
}

}  // namespace lockstep::emulated
