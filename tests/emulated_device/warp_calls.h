// What lanes of a warp do together, once all of them have arrived.
#pragma once

#include <array>
#include <cstddef>

#include "emulated_device/kernel_run.h"

namespace lockstep::emulated {

/// Publishes `given` (at most 64 bytes) of the running thread and waits until all lanes of `mask` have come to the same
/// call. Returns what the call gives this lane.
const std::byte* meet(WarpCall call, unsigned mask, const void* given, std::size_t bytes, int line);

/// Computes what every lane of `mask` receives from what all have given. Lanes outside it are null.
void exchange(WarpCall call, unsigned mask, const std::array<KernelThread*, kWarpLanes>& lanes);

}  // namespace lockstep::emulated
