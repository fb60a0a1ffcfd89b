// How fast a rank's device multiplies matrices: what the utilisation in the metrics is a part of.
#pragma once

#include "base/dtype.h"
#include "device/queue.h"

namespace lockstep {

/// Floating-point operations a second of products in `dtype`: on the CPU of its own multiply-add instructions, on a
/// GPU of one large product, the median of a few. 0 on a dry queue. Takes milliseconds, and on a GPU 100 MiB
/// that it gives back.
double measure_device_peak(Queue& queue, DType dtype);

}  // namespace lockstep
