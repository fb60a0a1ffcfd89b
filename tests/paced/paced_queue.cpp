#include "paced/paced_queue.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>

#include <sys/prctl.h>

#include "base/clock.h"
#include "device/cpu/cpu_queue.h"

namespace lockstep {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;
// Shorter kernels are added up: a sleep itself takes some tens of microseconds.
constexpr std::int64_t kShortestSleep = 20'000;
// A device that has had nothing to do for longer was waiting, not served late by the host.
constexpr std::int64_t kLongestDelay = 5'000'000;

}  // namespace

double Pace::seconds(Cost cost) const {
  return std::max(cost.operations / operations_per_second, cost.bytes / bytes_per_second);
}

PacedQueue::PacedQueue(Pace pace) : pace_(pace) {
  prctl(PR_SET_TIMERSLACK, 1);  // or sleeps end 50 microseconds late
  listen([this](const char* /*name*/, Cost cost) { run(cost); });
}

Memory PacedQueue::allocate(std::size_t bytes) {
  allocated_bytes_ += bytes;
  return allocate_host(bytes);
}

void PacedQueue::run(Cost cost) {
  const double seconds = pace_.seconds(cost);
  predicted_seconds_ += seconds;
  const std::int64_t now = now_ns();
  if (now - done_ns_ > kLongestDelay) {
    done_ns_ = now;
  }
  done_ns_ += std::llround(seconds * static_cast<double>(kNanoseconds));
  if (done_ns_ - now > kShortestSleep) {
    sleep_until_done();
  }
}

void PacedQueue::synchronize() {
  sleep_until_done();
  done_ns_ = 0;
}

void PacedQueue::sleep_until_done() {
  // std::chrono's steady clock, which now_ns() reads, is CLOCK_MONOTONIC.
  const timespec deadline{done_ns_ / kNanoseconds, done_ns_ % kNanoseconds};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, nullptr) == EINTR) {
  }
}

}  // namespace lockstep
