// The CPU's queue: a kernel runs on the rank's threads and is complete when its launch returns.
#pragma once

#include "device/cpu/thread_pool.h"
#include "device/queue.h"

namespace lockstep {

class CpuQueue final : public Queue {
 public:
  explicit CpuQueue(int num_threads);

  Memory allocate(std::size_t bytes) override;
  Memory allocate_for_host(std::size_t bytes) override { return allocate(bytes); }
  void copy_to_device(void* to, const void* from, std::size_t bytes) override;
  void copy_to_host(void* to, const void* from, std::size_t bytes) override;
  [[nodiscard]] std::size_t allocated_bytes() const override { return allocated_bytes_; }
  void synchronize() override {}
  std::byte* workspace(std::size_t bytes) override;
  void seal_workspace() override { sealed_ = true; }
  [[nodiscard]] std::size_t workspace_bytes() const override { return workspace_.bytes(); }

  [[nodiscard]] ThreadPool& threads() { return threads_; }
  [[nodiscard]] ThreadPool* host_threads() override { return &threads_; }

 private:
  ThreadPool threads_;
  Memory workspace_;
  std::size_t allocated_bytes_ = 0;
  bool sealed_ = false;
};

/// Zero-filled, page-aligned host memory that prefers huge pages.
/// Throws Error when the system refuses it.
Memory allocate_host(std::size_t bytes);

}  // namespace lockstep
