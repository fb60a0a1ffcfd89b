#include "comm/message.h"

#include "base/error.h"

namespace lockstep {

void check_message(const Communicator& group, const char* what, int peer, int tag) {
  if (group.size() == 1) {
    throw_error(
        "{} rank {}: a group of one rank has no other to exchange messages with", what, peer);
  }
  if (peer < 0 || peer >= group.size() || peer == group.rank()) {
    throw_error("{} rank {}: expected another rank than {} of the group of {}",
                what,
                peer,
                group.rank(),
                group.size());
  }
  if (tag < 0 || tag > Communicator::kMaxTag) {
    throw_error("{} rank {}: tag {} is outside 0 to {}", what, peer, tag, Communicator::kMaxTag);
  }
}

}  // namespace lockstep
