// What the groups of one GPU do while they wait: steps of operations that the host has to take, and looking for
// errors.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

namespace lockstep {

class DeviceProgress {
 public:
  /// Something that has to be looked at now and then. It may throw Error.
  using Task = std::function<void()>;

  /// Returns a number by which `remove` finds it again.
  int add(Task task) {
    tasks_.push_back({next_, std::move(task)});
    return next_++;
  }
  void remove(int number) {
    std::erase_if(tasks_, [&](const Entry& entry) { return entry.number == number; });
  }
  /// Looks at everything. No allocation.
  void poll() {
    for (const Entry& entry : tasks_) {
      entry.task();
    }
  }

 private:
  struct Entry {
    int number;
    Task task;
  };
  std::vector<Entry> tasks_;
  int next_ = 0;
};

}  // namespace lockstep
