// What the sends and receives of all communicators check.
#pragma once

#include "comm/communicator.h"

namespace lockstep {

/// Throws Error unless `peer` is another rank of `group` and `tag` is one of its tags. `what` is
/// "send to" or "receive from", for the message.
void check_message(const Communicator& group, const char* what, int peer, int tag);

}  // namespace lockstep
