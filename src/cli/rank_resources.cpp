#include "cli/rank_resources.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <sched.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "comm/accelerator.h"
#include "comm/local/local_communicator.h"
#include "device/cpu/cpu_queue.h"
#include "training/collectively.h"
#include "training/rank_plan.h"

namespace lockstep {
namespace {

// The cores this process may run on, as text that is equal for equal sets.
std::string allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return "";
  }
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) {
      text += text.empty() ? "" : ",";
      text += std::to_string(core);
    }
  }
  return text;
}

void refuse_different_configurations(const Configuration& config, Communicator& world) {
  const std::string text = to_toml(config);
  const std::string mine = to_hex(hash_of(text.data(), text.size()));
  const std::vector<std::string> all = world.all_gather_text(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      throw_request_error(
          "rank {} was started with another configuration than rank 0: give all ranks the same "
          "flags and the same configuration file",
          rank);
    }
  }
}

// Where every rank runs: host, cores, threads.
void announce(const std::vector<std::string>& hosts,
              const std::vector<std::string>& cores,
              const std::vector<std::string>& threads,
              const std::vector<std::string>& gpus) {
  log::info("{} rank{} on {}",
            hosts.size(),
            hosts.size() == 1 ? "" : "s",
            gpus[0].empty() ? "the CPU" : "GPUs");
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    log::info("  rank {}: host {}{}, cores {}, {} thread{}",
              rank,
              hosts[rank],
              gpus[rank].empty() ? "" : ", " + gpus[rank],
              cores[rank],
              threads[rank],
              threads[rank] == "1" ? "" : "s");
    const auto num_cores = 1 + std::count(cores[rank].begin(), cores[rank].end(), ',');
    if (std::stol(threads[rank]) > num_cores) {
      log::warn(
          "  rank {} has {} threads on {} core{}: start it with more cores (mpirun --bind-to "
          "none, or --map-by slot:PE={}) or lower run.threads",
          rank,
          threads[rank],
          num_cores,
          num_cores == 1 ? "" : "s",
          threads[rank]);
    }
  }
}

// Ranks of a host that may run on the same cores share them. Hosts in network namespaces of one machine look
// like one here, and share its cores as well. Collective.
long fair_share_of_cores(const std::string& cores, Communicator& group) {
  const std::vector<std::string> all = group.all_gather_text(cores);
  const auto& host_of = group.host_of();
  const auto here = host_of[static_cast<std::size_t>(group.rank())];
  long sharing = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    sharing += host_of[rank] == here && all[rank] == cores ? 1 : 0;
  }
  return std::max(1L, num_allowed_cores() / std::max(1L, sharing));
}

// Whether all ranks compute on GPUs, as run.device wants it and every rank can; `local_ranks` are on this host.
// Collective if there is a group.
bool uses_gpu(const Configuration& config, int local_ranks, Communicator* group) {
  const std::string& device = config.run.device;
  if (device == "cpu" || accelerator() == nullptr) {
    if (device == "cuda") {
      throw_request_error(
          "run.device = cuda: this program was built without CUDA ({}); valid: auto | cpu",
          build_info().cuda);
    }
    if (config.parallel.backend == "nccl") {
      throw_request_error(
          "parallel.backend = nccl: NCCL moves memory of GPUs, and kernels run on the CPU; valid: "
          "auto | mpi");
    }
    return false;
  }
  const std::vector<std::string> reasons = group->all_gather_text(accelerator()->why_not());
  const bool crowded = local_ranks > accelerator()->num_devices();
  const auto crowds = group->all_gather_text(crowded ? "crowded" : "");
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (device == "cuda" && !reasons[rank].empty()) {
      throw_request_error("run.device = cuda is impossible on rank {}: {}; valid there: auto | cpu",
                          rank,
                          reasons[rank]);
    }
    if (device == "auto" && (!reasons[rank].empty() || !crowds[rank].empty())) {
      return false;
    }
  }
  return true;
}

}  // namespace

int num_allowed_cores() {
  const std::string cores = allowed_cores();
  return cores.empty() ? 1 : 1 + static_cast<int>(std::count(cores.begin(), cores.end(), ','));
}

std::unique_ptr<Queue> start_lone_queue(const Configuration& config) {
  const int threads =
      config.run.threads > 0 ? static_cast<int>(config.run.threads) : num_allowed_cores();
  LocalCommunicator alone;
  if (uses_gpu(config, 1, &alone)) {
    return accelerator()->make_queue(0, threads);
  }
  return std::make_unique<CpuQueue>(threads);
}

RankResources start_rank(const Configuration& config, MpiRuntime& runtime) {
  const std::string cores = allowed_cores();
  long threads = config.run.threads;
  RankResources rank;
  {
    MpiOptions plain;
    plain.time_limit_seconds = static_cast<double>(config.fault.hang_timeout_seconds);
    const bool may_use_gpu = config.run.device != "cpu" && accelerator() != nullptr;
    const auto group = threads == 0 || may_use_gpu ? make_world(runtime, plain) : nullptr;
    if (threads == 0) {
      threads = fair_share_of_cores(cores, *group);
    }
    if (uses_gpu(config, runtime.local_size(), group.get())) {
      rank.queue = accelerator()->make_queue(runtime.local_rank(), static_cast<int>(threads));
    } else {
      rank.queue = std::make_unique<CpuQueue>(static_cast<int>(threads));
    }
  }
  MpiOptions options;
  options.threads = rank.queue->host_threads();
  options.time_limit_seconds = static_cast<double>(config.fault.hang_timeout_seconds);
  rank.world = make_world(runtime, options);
  refuse_different_configurations(config, *rank.world);
  const auto hosts = rank.world->all_gather_text(runtime.host_name());
  const auto all_cores = rank.world->all_gather_text(cores);
  const auto all_threads = rank.world->all_gather_text(std::to_string(threads));
  const bool on_gpu = rank.queue->kind() == DeviceKind::kCuda;
  const auto gpus = rank.world->all_gather_text(on_gpu ? accelerator()->describe(*rank.queue) : "");
  if (rank.world->rank() == 0) {
    announce(hosts, all_cores, all_threads, gpus);
  }
  if (on_gpu) {
    rank.world = accelerator()->make_group(
        std::move(rank.world), *rank.queue, transport_of(config.parallel, DeviceKind::kCuda));
    rank.world->set_time_limit(static_cast<double>(config.fault.hang_timeout_seconds));
  }
  return rank;
}

}  // namespace lockstep
