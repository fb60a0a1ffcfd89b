// What a rank computes with: its device, its queue and the group of all ranks.
#pragma once

#include <memory>

#include "cli/configuration.h"
#include "comm/communicator.h"
#include "comm/mpi/runtime.h"
#include "device/queue.h"

namespace lockstep {

/// The world must go before the queue whose threads it uses.
struct RankResources {
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Communicator> world;
};

/// Chooses the device (run.device), starts the rank's threads (run.threads; 0: the cores it may run on, shared with the ranks that
/// may run there too), joins the group, refuses ranks that were started with other configurations,
/// and says on rank 0 what runs where. Threads piled on too few cores are reported. Collective.
RankResources start_rank(const Configuration& config, MpiRuntime& runtime);

/// The queue of a command that runs on one rank, whatever the others do: on the device of run.device, with
/// run.threads threads of the host (0: the cores it may run on). Errors: RequestError.
std::unique_ptr<Queue> start_lone_queue(const Configuration& config);

/// Cores this process may run on.
int num_allowed_cores();

}  // namespace lockstep
