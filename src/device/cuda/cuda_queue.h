// The queue of one GPU.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "device/cpu/thread_pool.h"
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
  /// `num_threads`: of the host, for work beside the kernels.
  explicit CudaQueue(const CudaDevice& device, int num_threads = 1);
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  [[nodiscard]] const CudaDevice& device() const { return device_; }
  /// Where kernels go.
  [[nodiscard]] cudaStream_t stream() const { return current_; }

  /// Kernels launched in its lifetime go to another stream.
  class StreamScope {
   public:
    StreamScope(CudaQueue& queue, cudaStream_t stream) : queue_(queue), before_(queue.current_) {
      queue.current_ = stream;
    }
    ~StreamScope() { queue_.current_ = before_; }
    StreamScope(const StreamScope&) = delete;
    StreamScope& operator=(const StreamScope&) = delete;

   private:
    CudaQueue& queue_;
    cudaStream_t before_;
  };

  /// A stream beside that of the kernels, for communication or copies; destroyed with the queue.
  cudaStream_t add_stream();

  /// Called again and again while `synchronize` waits: finds errors of communication, which would keep the
  /// device waiting for ever. It may throw Error.
  void set_waiter(std::function<void()> waiter) { waiter_ = std::move(waiter); }

  /// Takes one arena of device memory from which `allocate` hands out from then on. Once.
  void reserve(std::size_t device_bytes);

  Memory allocate(std::size_t bytes) override;
  /// The same for others who count it themselves: takes `taken` bytes and hands out `bytes` of them.
  Memory take(std::size_t taken, std::size_t bytes);
  /// Pinned memory of the host that is not counted either.
  static Memory take_pinned(std::size_t bytes);
  Memory allocate_for_host(std::size_t bytes) override;
  /// Through pinned buffers: the host does not wait for the device, unless all of them are on their way.
  void copy_to_device(void* to, const void* from, std::size_t bytes) override;
  void copy_to_host(void* to, const void* from, std::size_t bytes) override;
  [[nodiscard]] std::size_t allocated_bytes() const override { return allocated_bytes_; }
  void synchronize() override;
  std::byte* workspace(std::size_t bytes) override;
  void seal_workspace() override { sealed_ = true; }
  [[nodiscard]] std::size_t workspace_bytes() const override { return workspace_.bytes(); }

  [[nodiscard]] ThreadPool* host_threads() override { return &threads_; }

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
  ThreadPool threads_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t current_ = nullptr;
  std::vector<cudaStream_t> streams_;  ///< of others
  std::function<void()> waiter_;
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
