#include "cli/application.h"

#include <csignal>
#include <exception>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/request.h"
#include "comm/mpi/runtime.h"

namespace lockstep {
namespace {

constexpr int kRequestStatus = 2;
constexpr int kFailureStatus = 3;

int answer(const Request& request, MpiRuntime& runtime) {
  const bool speaks = runtime.global_rank() == 0;
  switch (request.kind) {
    case Request::Kind::kHelp:
      std::cout << (speaks ? help_text() : "");
      return 0;
    case Request::Kind::kVersion:
      std::cout << (speaks ? version_text(MpiRuntime::library_version()) : "");
      return 0;
    case Request::Kind::kPrintConfig:
      std::cout << (speaks ? to_toml(request.config) : "");
      return 0;
    case Request::Kind::kCommand:
      break;
  }
  // These need no other ranks and write nothing.
  if (request.command != Command::kPlan && request.command != Command::kBenchKernels) {
    runtime.refuse_lonely_slurm_task();
  }
  log::start(runtime.global_rank(), runtime.global_size(), request.config.log.level);
  if (speaks) {
    for (const std::string& warning : request.warnings) {
      log::warn("{}", warning);
    }
  }
  return run_command(request, runtime);
}

}  // namespace

int run_application(int argc, char** argv) {
  log::start(0, 1, "info");
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit fails the write, which is reported
  std::optional<MpiRuntime> runtime;
  try {
    runtime.emplace(argc, argv);
    log::start(runtime->global_rank(), runtime->global_size(), "info");
    return answer(parse_request(argc, argv), *runtime);
  } catch (const RequestError& refusal) {
    // Every rank refuses alike; one says so.
    if (!runtime || runtime->global_rank() == 0) {
      log::error("{}", refusal.what());
    }
    return kRequestStatus;
  } catch (const std::exception& failure) {
    log::error("{}", failure.what());
    if (runtime && runtime->has_mpi()) {
      runtime->abort(kFailureStatus);  // other ranks may be waiting for this one
    }
    return kFailureStatus;
  }
}

}  // namespace lockstep
