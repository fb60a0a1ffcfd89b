// What a rank does in its training steps: operations, and messages by group and kind.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "comm/traffic.h"
#include "device/queue.h"
#include "parallel/mesh.h"

namespace lockstep {

/// Calls of one kind, and the bytes that the rank sent in them: sums over steps, or means.
struct WorkCount {
  double calls = 0;
  double bytes = 0;
};

/// What was sent in one group.
struct GroupWork {
  const char* name = "";  ///< "data", "pipeline", "tensor", "world" or "weights"
  std::array<WorkCount, kNumTrafficKinds> kinds;

  [[nodiscard]] double bytes() const;
  /// Calls of any kind.
  [[nodiscard]] bool any() const;
};

/// Groups along axes of one rank have no calls. Where an axis is as long as the world, both are one
/// group: its operations stand under the axis, the few numbers that all ranks exchange in every step
/// under "world", as in any other mesh. "weights": gathers of ZeRO stage 3, among the ranks of "data".
struct RankWork {
  double operations = 0;  ///< floating-point, of matrix products and attention
  std::array<GroupWork, 5> groups{
      {{"data", {}}, {"pipeline", {}}, {"tensor", {}}, {"world", {}}, {"weights", {}}}};

  /// Sum over the groups.
  [[nodiscard]] double bytes_sent() const;
  RankWork& operator+=(const RankWork& other);
  RankWork& operator-=(const RankWork& other);
  RankWork& operator/=(double divisor);
  /// "data: all_reduce 2 calls, 8192 bytes; world: values 2 calls, 48 bytes"; empty without calls.
  [[nodiscard]] std::string text() const;
};

/// Sums up the work of training steps, without what is done between them. Costs nothing during a step.
class WorkMeter {
 public:
  /// Both outlive this. Pauses until `resume`.
  WorkMeter(const Mesh& mesh, const Queue& queue) : mesh_(&mesh), queue_(&queue) {}

  /// Between steps only. What happens until `pause` counts.
  void resume() { begin_ = read(); }
  void pause() {
    done_ = total();
    begin_.reset();
  }
  /// Sums over what counts so far. No allocation.
  [[nodiscard]] RankWork total() const;

 private:
  [[nodiscard]] RankWork read() const;

  const Mesh* mesh_;
  const Queue* queue_;
  RankWork done_;                  ///< before the last pause
  std::optional<RankWork> begin_;  ///< what `read` gave at the last `resume`; none in a pause
};

/// Leaves its lifetime, between two steps, out of a meter.
class WorkPause {
 public:
  explicit WorkPause(WorkMeter& meter) : meter_(&meter) { meter_->pause(); }
  ~WorkPause() { meter_->resume(); }
  WorkPause(const WorkPause&) = delete;
  WorkPause& operator=(const WorkPause&) = delete;

 private:
  WorkMeter* meter_;
};

}  // namespace lockstep
