// The queue of one GPU: a stream for kernels, and one each for communication and copies.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <typeindex>
#include <typeinfo>

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_device.h"
#include "device/queue.h"

namespace lockstep {

/// A CUDA event, made once and used again.
class CudaEvent {
 public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  /// Marks what is in `stream` so far.
  void record(cudaStream_t stream);
  /// Lets work put into `stream` from now on wait for the mark. Does not wait itself.
  void make_wait(cudaStream_t stream) const;
  /// Whether all that was marked is done; true before the first record.
  [[nodiscard]] bool is_done() const;
  /// Waits for it.
  void wait() const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// Kernels run in order on `stream()`. Memory comes from one arena a kind, taken by `reserve`; without it, or
/// beyond it, each piece is taken from the device by itself. All of it is zero-filled.
class CudaQueue final : public Queue {
 public:
  /// Makes `device` the one of the calling thread. Throws Error.
  explicit CudaQueue(const CudaDevice& device);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  [[nodiscard]] const CudaDevice& device() const { return device_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] cudaStream_t communication_stream() const { return communication_stream_; }
  [[nodiscard]] cudaStream_t copy_stream() const { return copy_stream_; }

  /// Takes one arena of device memory from which `allocate` hands out. Before the first `allocate`.
  void reserve(std::size_t device_bytes);

  Memory allocate(std::size_t bytes) override;
  Memory allocate_for_host(std::size_t bytes) override;
  /// Through pinned buffers: the host does not wait for the device, unless all of them are on their way.
  void copy_to_device(void* to, const void* from, std::size_t bytes) override;
  void copy_to_host(void* to, const void* from, std::size_t bytes) override;
  [[nodiscard]] std::size_t allocated_bytes() const override { return allocated_bytes_; }
  void synchronize() override;
  std::byte* workspace(std::size_t bytes) override;
  void seal_workspace() override { sealed_ = true; }
  [[nodiscard]] std::size_t workspace_bytes() const override { return workspace_.bytes(); }

  /// The queue's State, which kernels keep from call to call (a library's handle): made when first asked for, gone
  /// with the queue, after its last kernel.
  template <typename State>
  State& state() {
    std::shared_ptr<void>& slot = states_[typeid(State)];
    if (slot == nullptr) {
      slot = std::make_shared<State>();
    }
    return *static_cast<State*>(slot.get());
  }
  /// The same if it exists, else null.
  template <typename State>
  [[nodiscard]] const State* find_state() const {
    const auto found = states_.find(typeid(State));
    return found == states_.end() ? nullptr : static_cast<const State*>(found->second.get());
  }

  /// Pieces of the arena start on a multiple of this.
  static constexpr std::size_t kAlignment = 256;

 private:
  struct StagingBuffer {
    void* data = nullptr;
    CudaEvent sent;
  };
  static constexpr std::size_t kStagingBytes = std::size_t{1} << 20U;
  static constexpr std::size_t kNumStaging = 4;

  CudaDevice device_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t communication_stream_ = nullptr;
  cudaStream_t copy_stream_ = nullptr;
  std::byte* arena_ = nullptr;
  std::size_t arena_bytes_ = 0;
  std::size_t arena_used_ = 0;
  Memory workspace_;
  std::map<std::type_index, std::shared_ptr<void>> states_;
  bool sealed_ = false;
  std::size_t allocated_bytes_ = 0;
  std::array<StagingBuffer, kNumStaging> staging_;
  std::size_t next_staging_ = 0;
};

}  // namespace lockstep
