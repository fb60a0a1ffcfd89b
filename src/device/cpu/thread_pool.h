// The threads of one rank. Which thread runs a task never decides what the task computes.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace lockstep {

/// Runs independent tasks on a fixed set of threads, the caller among them. Waiting threads spin
/// for some microseconds, then sleep, so that ranks may outnumber cores. One pool a rank; used by
/// one thread. oneDNN and OpenMP code called inside a task runs on that one thread.
class ThreadPool {
 public:
  /// `num_threads` counts the caller.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(0) .. task(num_tasks - 1), each once, in any order and on any thread; returns when
  /// all are done. The first exception of a task is rethrown. No allocation.
  void run(long num_tasks, FunctionRef<void(long task)> task);

  /// As above; also gives the thread's number in 0..num_threads-1, for scratch memory of its own.
  void run_indexed(long num_tasks, FunctionRef<void(long task, int thread)> task);

 private:
  void work(int thread);
  void drain(int thread);

  std::vector<std::thread> workers_;
  const FunctionRef<void(long, int)>* task_ = nullptr;
  long num_tasks_ = 0;
  std::atomic<long> next_task_{0};
  std::atomic<int> running_{0};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  bool stopping_ = false;
};

}  // namespace lockstep
