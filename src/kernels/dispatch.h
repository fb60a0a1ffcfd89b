// How `launch` finds the implementation of a kernel; used by the kernels' own sources only.
#pragma once

#include "base/error.h"
#include "device/cpu/cpu_queue.h"
#include "device/dry/dry_queue.h"
#include "device/queue.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"

namespace lockstep {

/// Runs `op` on the queue's device. An op is a struct with
///   static constexpr const char* kName;
///   Cost cost() const;
///   std::size_t workspace_bytes() const;   // scratch it takes from the queue; 0 if none
/// and a line in kernels/cpu/backend.h. One with
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
    case DeviceKind::kDry:
      queue.workspace(op.workspace_bytes());
      static_cast<DryQueue&>(queue).record(Op::kName, op.cost());
      return;
  }
  LOCKSTEP_CHECK(false);
}

}  // namespace lockstep
