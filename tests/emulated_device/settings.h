// What the environment says about the emulated device, and its random choices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::emulated {

struct Settings {
  std::uint64_t seed =
      0;  ///< LOCKSTEP_EMULATED_SEED (default 1), mixed with the rank that Open MPI or Slurm tells
  bool checks = true;   ///< LOCKSTEP_EMULATED_CHECKS=0 turns the checks of single accesses off
  int num_devices = 1;  ///< LOCKSTEP_EMULATED_GPUS, of the machine
  std::size_t device_bytes = 0;  ///< LOCKSTEP_EMULATED_GPU_MIB (default 2048)
};

const Settings& settings();

/// Uniform below `count`, which is not 0. From one generator: a seed gives one order of everything, as long as the
/// program's calls are the same.
std::uint32_t random_below(std::uint32_t count);

}  // namespace lockstep::emulated
