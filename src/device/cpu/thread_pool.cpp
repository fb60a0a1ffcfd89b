#include "device/cpu/thread_pool.h"

#include <exception>

#include <omp.h>

#include "base/error.h"
#include "device/cpu/spin.h"

namespace lockstep {

ThreadPool::ThreadPool(int num_threads) {
  LOCKSTEP_CHECK(num_threads >= 1);
  omp_set_num_threads(1);
  workers_.reserve(static_cast<std::size_t>(num_threads) - 1);
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::run(long num_tasks, FunctionRef<void(long)> task) {
  run_indexed(num_tasks, [&task](long index, int) { task(index); });
}

void ThreadPool::run_indexed(long num_tasks, FunctionRef<void(long, int)> task) {
  if (workers_.empty() || num_tasks <= 1) {
    for (long index = 0; index < num_tasks; ++index) {
      task(index, 0);
    }
    return;
  }
  task_ = &task;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain(0);
  // A worker still counts as running until it has left the task list, so the list may be reused.
  for (int running = running_.load(std::memory_order_acquire); running > 0;
       running = running_.load(std::memory_order_acquire)) {
    if (!spin_until([&] { return running_.load(std::memory_order_acquire) == 0; })) {
      running_.wait(running, std::memory_order_acquire);
    }
  }
  if (failed_.load(std::memory_order_acquire)) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void ThreadPool::drain(int thread) {
  for (long index = next_task_.fetch_add(1, std::memory_order_relaxed); index < num_tasks_;
       index = next_task_.fetch_add(1, std::memory_order_relaxed)) {
    try {
      (*task_)(index, thread);
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_acq_rel)) {
        failure_ = std::current_exception();
      }
    }
  }
}

void ThreadPool::work(int thread) {
  omp_set_num_threads(1);
  std::uint32_t seen = 0;
  while (true) {
    if (!spin_until([&] { return generation_.load(std::memory_order_acquire) != seen; })) {
      generation_.wait(seen, std::memory_order_acquire);
      if (generation_.load(std::memory_order_acquire) == seen) {
        continue;
      }
    }
    ++seen;
    if (stopping_) {
      return;
    }
    drain(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      running_.notify_one();
    }
  }
}

}  // namespace lockstep
