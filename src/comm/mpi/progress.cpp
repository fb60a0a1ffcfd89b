#include "comm/mpi/progress.h"

#include <algorithm>

#include "comm/mpi/group.h"

namespace lockstep {
namespace {

constexpr unsigned kPollsBetweenChecks = 64;

}  // namespace

void Progress::join(MpiGroup& group) {
  groups_.push_back(&group);
}

void Progress::leave(MpiGroup& group) {
  groups_.erase(std::remove(groups_.begin(), groups_.end(), &group), groups_.end());
}

void Progress::deactivate(Advancing& operation) {
  active_.erase(std::remove(active_.begin(), active_.end(), &operation), active_.end());
}

void Progress::poll() {
  for (std::size_t i = active_.size(); i-- > 0;) {
    if (active_[i]->advance()) {
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (++polls_ % kPollsBetweenChecks == 0) {
    for (MpiGroup* group : groups_) {
      group->look_around();
    }
  }
}

}  // namespace lockstep
