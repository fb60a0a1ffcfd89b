// How ranks exchange what their kernels work on.
#pragma once

#include <cstdint>

namespace lockstep {

enum class Transport : std::uint8_t {
  kHost,    ///< the device is the host: shared memory and MPI
  kNccl,    ///< from GPU to GPU
  kStaged,  ///< from GPUs through the memory of their hosts and MPI
};

}  // namespace lockstep
