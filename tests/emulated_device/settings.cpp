#include "emulated_device/settings.h"

#include <cstdlib>

namespace lockstep::emulated {
namespace {

std::uint64_t read_number(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

Settings read_settings() {
  Settings read;
  const std::uint64_t rank = read_number("OMPI_COMM_WORLD_RANK", read_number("SLURM_PROCID", 0));
  read.seed = read_number("LOCKSTEP_EMULATED_SEED", 1) * 0x9e3779b97f4a7c15U + rank;
  read.checks = read_number("LOCKSTEP_EMULATED_CHECKS", 1) != 0;
  read.num_devices = static_cast<int>(read_number("LOCKSTEP_EMULATED_GPUS", 1));
  read.device_bytes = read_number("LOCKSTEP_EMULATED_GPU_MIB", 2048) << 20U;
  return read;
}

// splitmix64 (Steele et al., 2014).
std::uint64_t next_random() {
  static std::uint64_t state = settings().seed;
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t mixed = state;
  mixed = (mixed ^ mixed >> 30U) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ mixed >> 27U) * 0x94d049bb133111ebU;
  return mixed ^ mixed >> 31U;
}

}  // namespace

const Settings& settings() {
  static const Settings read = read_settings();
  return read;
}

std::uint32_t random_below(std::uint32_t count) {
  return static_cast<std::uint32_t>((next_random() >> 32U) * count >> 32U);
}

}  // namespace lockstep::emulated
