// A queue that computes nothing and takes for every kernel the time that its cost predicts: shows how ranks that
// compute at their own pace work together, on a machine with fewer cores than ranks.
#pragma once

#include <cstdint>

#include "device/dry/dry_queue.h"

namespace lockstep {

/// How fast the device is that a PacedQueue stands in for.
struct Pace {
  double operations_per_second = 0;
  double bytes_per_second = 0;

  /// The longer one of a launch's arithmetic and its memory traffic.
  [[nodiscard]] double seconds(Cost cost) const;
};

/// Memory is real (zero-filled, kernels leave it alone), so that messages of real sizes can be sent from it. A launch
/// returns when the device would be done with it; the core sleeps meanwhile. What the host does between launches is
/// hidden behind them, as on a device with a queue, and a sleep that ends late does not delay the next one.
class PacedQueue final : public DryQueue {
 public:
  explicit PacedQueue(Pace pace);

  Memory allocate(std::size_t bytes) override;
  [[nodiscard]] std::size_t allocated_bytes() const override { return allocated_bytes_; }
  /// The next launch begins when it is made, and no earlier.
  void synchronize() override;
  void hand_over() override { synchronize(); }

  /// What the kernels so far were to take.
  [[nodiscard]] double predicted_seconds() const { return predicted_seconds_; }

 private:
  void run(Cost cost);
  void sleep_until_done();

  Pace pace_;
  std::size_t allocated_bytes_ = 0;
  double predicted_seconds_ = 0;
  std::int64_t done_ns_ = 0;  ///< when the device is done with what was launched
};

}  // namespace lockstep
