// Waiting for another thread or rank: short waits spin, longer ones give the core away.
#pragma once

#include <chrono>

#include <sched.h>

namespace lockstep {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Polls `done` for some tens of microseconds, yielding the core now and then in case the one
/// waited for needs it. True when `done` became true; the caller then need not sleep.
template <typename Done>
bool spin_until(Done done) {
  constexpr int kRounds = 40;
  constexpr int kPauses = 50;
  for (int round = 0; round < kRounds; ++round) {
    for (int pause = 0; pause < kPauses; ++pause) {
      if (done()) {
        return true;
      }
      cpu_relax();
    }
    sched_yield();
  }
  return done();
}

}  // namespace lockstep
