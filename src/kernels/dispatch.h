// How `launch` finds the implementation of a kernel; used by the kernels' own sources only.
#pragma once

#include "base/error.h"
#include "device/cpu/cpu_queue.h"
#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"

namespace lockstep {

/// What runs an op on a CUDA queue; null where the program has no such device. Set by
/// register_cuda_kernels (kernels/cuda/), so that nothing else is linked with CUDA.
template <typename Op>
inline void (*cuda_implementation)(Queue& queue, const Op& op) = nullptr;

/// Scratch memory that `op` takes on a device.
template <typename Op>
std::size_t workspace_on(DeviceKind device, const Op& op) {
  if (device != DeviceKind::kCuda) {
    return op.workspace_bytes();
  }
  if constexpr (requires { op.cuda_workspace_bytes(); }) {
    return op.cuda_workspace_bytes();
  } else {
    return 0;
  }
}

/// Runs `op` on the queue's device. An op is a struct with
///   static constexpr const char* kName;
///   Cost cost() const;
///   std::size_t workspace_bytes() const;   // scratch it takes from a CPU's queue; 0 if none
/// and a line in kernels/cpu/backend.h and in kernels/cuda/backend.h. One that needs scratch on a CUDA device
/// has cuda_workspace_bytes(), too. One with
///   static constexpr bool kCountsOperations = true;
/// adds to the queue's operations().
template <typename Op>
void dispatch(Queue& queue, const Op& op) {
  if constexpr (requires { Op::kCountsOperations; }) {
    queue.count_operations(op.cost().operations);
  }
  switch (queue.kind()) {
    case DeviceKind::kCpu:
      select_instruction_set();
      run_on_cpu(static_cast<CpuQueue&>(queue), op);
      return;
    case DeviceKind::kCuda:
      LOCKSTEP_CHECK(cuda_implementation<Op> != nullptr);
      cuda_implementation<Op>(queue, op);
      return;
    case DeviceKind::kDry:
      queue.workspace(workspace_on(queue.planned_kind(), op));
      static_cast<DryQueue&>(queue).record(Op::kName, op.cost());
      return;
  }
  LOCKSTEP_CHECK(false);
}

}  // namespace lockstep
