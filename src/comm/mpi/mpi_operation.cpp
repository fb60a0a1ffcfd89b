#include "comm/mpi/mpi_operation.h"

#include "base/error.h"

namespace lockstep {

MpiOperation::~MpiOperation() {
  if (running_) {
    group_.deactivate(*this);
  }
}

void MpiOperation::start() {
  LOCKSTEP_CHECK(!running_);
  ++generation_;
  call_number_ = group_.begin_call(number_);
  running_ = true;
  group_.activate(*this);
  group_.count_sent(bytes_sent_);
  begin(call_number_, generation_);
}

bool MpiOperation::poll() {
  if (running_) {
    group_.poll();
  }
  return !running_;
}

void MpiOperation::wait() {
  if (running_) {
    group_.wait(
        number_,
        call_number_,
        [this] { return !running_; },
        [this](int local) { return is_missing(local); });
  }
}

}  // namespace lockstep
