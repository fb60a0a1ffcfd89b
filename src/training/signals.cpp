#include "training/signals.h"

#include <csignal>
#include <initializer_list>

namespace lockstep {
namespace {

volatile std::sig_atomic_t requested = 0;

extern "C" void on_stop_signal(int signal) {
  requested = 1;
  if (signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
  }
}

}  // namespace

void catch_stop_signals() {
  requested = 0;
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;  // a read of data that is interrupted goes on
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    sigaction(signal, &action, nullptr);
  }
}

bool stop_requested() {
  return requested != 0;
}

}  // namespace lockstep
