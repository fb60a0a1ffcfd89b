// Handles of streams, and what is put into them: at once, or into a graph that is being captured.
#pragma once

#include <functional>
#include <memory>

#include <driver_types.h>

#include "emulated_device/operations.h"

namespace lockstep::emulated {

using MakeOperation = std::function<std::unique_ptr<Operation>()>;

/// Puts what `make` returns into the stream; while the stream is captured, `make` goes into the graph, which calls it
/// at every start.
cudaError_t submit(cudaStream_t handle, MakeOperation make);
/// The same of an operation that is one function.
cudaError_t submit_work(cudaStream_t stream, const char* what, const std::function<void()>& work);

/// Works until all of the stream is done. Not while it is captured.
cudaError_t wait_for_stream(cudaStream_t handle);

bool is_capturing(cudaStream_t stream);
/// Whether a capture forbids calls that could wait for the device.
bool is_capture_strict();
/// Which device a stream is of.
int device_of_stream(cudaStream_t stream);

/// The device of the calling thread.
int current_device();
/// Visible ones.
int num_devices();

/// Keeps it for cudaGetLastError, if it is one, and returns it.
cudaError_t note_error(cudaError_t status);

/// Faults if ncclGroupStart has been called without ncclGroupEnd: what is in the group would never be done.
void check_no_open_group(const char* function);

}  // namespace lockstep::emulated
