// What progresses together: the started communications of a group of MPI ranks and of all groups
// split from it.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

class MpiGroup;

/// A started communication.
class Advancing {
 public:
  virtual ~Advancing() = default;
  /// Does what can be done without waiting; true when complete.
  virtual bool advance() = 0;
};

class Progress {
 public:
  Progress() = default;
  ~Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void join(MpiGroup& group);
  void leave(MpiGroup& group);

  /// Makes room for one more operation, so that `activate` does not allocate.
  void make_room() { active_.reserve(++num_operations_); }
  void activate(Advancing& operation) { active_.push_back(&operation); }
  void deactivate(Advancing& operation);

  /// Advances what was started, whatever the group; now and then lets every group look whether its
  /// ranks went different ways. Throws Error.
  void poll();

 private:
  std::vector<MpiGroup*> groups_;
  std::vector<Advancing*> active_;
  std::size_t num_operations_ = 0;
  unsigned polls_ = 0;
};

}  // namespace lockstep
