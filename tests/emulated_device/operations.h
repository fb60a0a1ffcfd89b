// What streams do, in which order: everything is done late, when the host waits or asks, in a random order among all
// that streams and events allow. Program order alone orders nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::emulated {

/// For every lane how many of its operations came before; missing ones are 0. A lane is a stream, or a branch of a
/// graph that was made ready to run.
using Clock = std::vector<std::uint32_t>;
void join(Clock& into, const Clock& from);

class Operation {
 public:
  /// `what` names it and lives on; of a kernel, `kernel` is its address.
  explicit Operation(const char* what, const void* kernel = nullptr)
      : what_(what), kernel_(kernel) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Called once `id`, `lane` and `number` are known.
  virtual void was_enqueued() {}
  /// Goes on with it, without ever waiting for another rank or stream. True once it is done.
  virtual bool advance() = 0;

  [[nodiscard]] const char* what() const { return what_; }
  [[nodiscard]] const void* kernel() const { return kernel_; }

  std::uint32_t id = 0;  ///< counts from 1 in the order of calls
  int lane = 0;
  std::uint32_t number = 0;  ///< in its lane, from 1
  Clock before;              ///< what has to be done first

 private:
  const char* what_;
  const void* kernel_;
};

/// An operation that is one function.
class WorkOperation final : public Operation {
 public:
  WorkOperation(const char* what, std::function<void()> work)
      : Operation(what), work_(std::move(work)) {}
  bool advance() override {
    work_();
    return true;
  }

 private:
  std::function<void()> work_;
};

/// Held during every call of the emulated libraries.
class ApiLock {
 public:
  ApiLock();
  ~ApiLock();
  ApiLock(const ApiLock&) = delete;
  ApiLock& operator=(const ApiLock&) = delete;
};

int make_lane();
/// What the next operation of a lane comes after; to be joined with what else it has to wait for.
Clock& clock_of(int lane);
/// Puts an operation behind those of its lane and what the host has waited for. Returns its number.
std::uint32_t enqueue(int lane, std::unique_ptr<Operation> operation);
bool is_done(int lane, std::uint32_t number);
bool is_idle(int lane);
bool is_everything_idle();

/// Works on all lanes until `condition`. Faults if nothing can go on.
void work_until(const std::function<bool()>& condition);
/// The same of something that other ranks bring about: lets them run while nothing can go on here.
void wait_with_others(const std::function<bool()>& condition);
/// A few steps, as the device does while the host only asks. Lets other threads and ranks run, if nothing can go on.
void work_a_little();
/// The host knows that all of `clock` is done: what it enqueues from now on comes after it.
void note_host_wait(const Clock& clock);
/// The host has waited for everything.
void note_host_wait_for_all();
bool is_known_to_host(int lane, std::uint32_t number);

/// Whether the operation `earlier` is certain to be done before the one that runs now: by streams, events and waits of
/// the host.
bool is_before_current(std::uint32_t earlier);
/// The operation that runs, or 0.
std::uint32_t current_operation();
std::string describe_current_operation();
std::string describe_operation(std::uint32_t id);

}  // namespace lockstep::emulated
