#include "base/log.h"

#include <memory>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "base/error.h"

namespace lockstep::log {
namespace {

int this_rank = 0;

}  // namespace

void start(int global_rank, int num_ranks, const std::string& level) {
  this_rank = global_rank;
  auto console = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  console->set_level(global_rank == 0 ? spdlog::level::from_str(level) : spdlog::level::err);
  console->set_pattern(num_ranks > 1 ? fmt::format("[%H:%M:%S] %^%l%$ [{}] %v", global_rank)
                                     : "[%H:%M:%S] %^%l%$ %v");
  auto logger = std::make_shared<spdlog::logger>("lockstep", console);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(logger);
}

void add_file(const std::string& directory) {
  const std::string path = fmt::format("{}/rank-{:05d}.log", directory, this_rank);
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, false);
    file->set_pattern("[%Y-%m-%d %H:%M:%S.%e] %l %v");
    spdlog::default_logger()->sinks().push_back(file);
  } catch (const spdlog::spdlog_ex& failure) {
    throw_error("cannot write the log file {}: {}", path, failure.what());
  }
}

}  // namespace lockstep::log
