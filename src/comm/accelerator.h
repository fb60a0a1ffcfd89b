// What a program that was built with a GPU backend offers; nothing else in the program is linked with it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/dtype.h"
#include "comm/communicator.h"
#include "comm/transport.h"
#include "device/queue.h"

namespace lockstep {

/// The GPUs of this process.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  /// Why this process cannot compute on a GPU, in words for users; empty if it can.
  [[nodiscard]] virtual std::string why_not() const = 0;
  /// Devices that this process sees.
  [[nodiscard]] virtual int num_devices() const = 0;
  /// "CUDA 13.0, cuBLASLt 13.0.0, NCCL 2.28.9", for --version.
  [[nodiscard]] virtual std::string versions() const = 0;

  /// The queue of the rank's GPU, chosen by its number on its host. `num_threads`: of the host.
  virtual std::unique_ptr<Queue> make_queue(int local_rank, int num_threads) const = 0;
  /// "NVIDIA H200, compute capability 9.0, 140.4 GiB".
  [[nodiscard]] virtual std::string describe(Queue& queue) const = 0;
  /// What decides bits, for the fingerprint of checkpoints.
  [[nodiscard]] virtual std::string fingerprint(Queue& queue) const = 0;
  /// Rows, columns and inner size of a product that keeps the device busy for some tenths of a millisecond.
  [[nodiscard]] virtual long large_product(Queue& queue) const = 0;
  /// Bytes of the device that are free now.
  [[nodiscard]] virtual std::size_t free_bytes(Queue& queue) const = 0;
  /// Takes device memory for all that will be allocated, at once. Before anything is.
  virtual void reserve(Queue& queue, std::size_t device_bytes) const = 0;

  /// Copies between memory of the device, in order with kernels: what its copy engine or kernel can move at most.
  virtual void copy_on_device(Queue& queue,
                              void* to,
                              const void* from,
                              std::size_t bytes) const = 0;

  /// The group for memory of the device: the ranks of `host`, which it takes over. The queue outlives it.
  /// Collective. Errors: RequestError on all ranks when two share a GPU under kNccl.
  virtual std::unique_ptr<Communicator> make_group(std::unique_ptr<Communicator> host,
                                                   Queue& queue,
                                                   Transport transport) const = 0;

 protected:
  Accelerator() = default;
};

/// Null in a build without one.
const Accelerator* accelerator();
/// Before anything else is done; `accelerator` outlives the program's work.
void set_accelerator(const Accelerator* accelerator);

}  // namespace lockstep
