// Logging: rank 0 on the console, every rank in its own file.
#pragma once

#include <string>

#include <spdlog/spdlog.h>

namespace lockstep::log {

/// Sets up the console (stderr). Other ranks than 0 print errors only. Call once, before any rank
/// can fail. `level` is trace | debug | info | warn | error.
void start(int global_rank, int num_ranks, const std::string& level);

/// Adds the file `<directory>/rank-00000.log`; the directory must exist.
void add_file(const std::string& directory);

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

}  // namespace lockstep::log
