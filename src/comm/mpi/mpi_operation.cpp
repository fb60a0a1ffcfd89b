#include "comm/mpi/mpi_operation.h"

#include "base/error.h"
#include "base/trace.h"

namespace lockstep {

MpiOperation::~MpiOperation() {
  if (running_) {
    group_.progress()->deactivate(*this);
  }
}

void MpiOperation::start() {
  LOCKSTEP_CHECK(!running_);
  moving_since_ns_ = 0;
  ++generation_;
  call_number_ = group_.begin_call(number_);
  running_ = true;
  group_.progress()->activate(*this);
  group_.traffic().count(kind_, bytes_sent_);
  begin(call_number_, generation_);
}

bool MpiOperation::poll() {
  if (running_) {
    group_.progress()->poll();
  }
  return !running_;
}

void MpiOperation::contributed() {
  if (moving_since_ns_ == 0 && process_trace().on()) {
    moving_since_ns_ = now_ns();
  }
}

void MpiOperation::finish() {
  running_ = false;
  if (moving_since_ns_ != 0) {
    process_trace().record(
        {name_of(kind_), group_.name(), moving_since_ns_, now_ns(), TraceTrack::kCommunication});
  }
}

void MpiOperation::wait() {
  if (running_) {
    const TraceSpan span(name_of_wait_for(kind_), group_.name(), TraceTrack::kWaiting);
    group_.wait(
        number_,
        call_number_,
        [this] { return !running_; },
        [this](int local) { return is_missing(local); });
  }
}

}  // namespace lockstep
