// The fastest a rank's threads could compute: what utilisation is measured against.
#pragma once

#include "base/dtype.h"
#include "device/cpu/cpu_queue.h"

namespace lockstep {

/// Operations a second of independent f32 multiply-adds in registers, on all threads of the queue at
/// once; twice that for products that use the processor's own bf16 instructions. Measured for some
/// milliseconds, as clocks differ: 0.3 ms a repetition, the best of ten.
double measure_peak_operations(CpuQueue& queue, DType dtype);

}  // namespace lockstep
