// What one rank writes and shows of a run: metrics.jsonl, TensorBoard, the live line, the summary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/tensorboard.h"
#include "training/evaluator.h"
#include "training/metrics.h"
#include "training/progress.h"
#include "training/rank_work.h"
#include "training/train_config.h"

namespace lockstep {

/// Used by rank 0. Rates are of the training steps alone: evaluations and checkpoints are left out.
class RunReporter {
 public:
  /// What turns counts into rates.
  struct Facts {
    long first_step = 0;  ///< updates done before this start
    long last_step = 0;
    long targets_per_sample = 1;
    double operations_per_target = 0;
    double peak_operations = 0;  ///< a second, of all ranks together
  };

  /// Writes config.toml and opens the files of <directory>, which exists; lines of steps after
  /// facts.first_step are removed. Errors: Error when a file cannot be written.
  RunReporter(const std::string& directory,
              const LogConfig& config,
              const std::string& config_text,
              const Facts& facts);

  /// The loop starts now: shows the live line, starts the clocks. `samples`: consumed so far.
  /// `meter`, which outlives this, counts this rank's work.
  void begin(long samples, const WorkMeter& meter);

  /// Whether anything is written or shown of this step.
  [[nodiscard]] bool wants(long step) const;

  /// After a step that is wanted. Fills in tokens, seconds, tokens_per_second, mfu and work.
  void step(TrainRecord record);

  void evaluation(const Evaluation& evaluation, long step);

  /// Time spent on something else than steps, which rates leave out.
  void exclude(std::int64_t nanoseconds) { window_begin_ns_ += nanoseconds; }

  /// Returns once all lines are on the disk: before a checkpoint.
  void sync() { metrics_.sync(); }

  /// Ends the live line and prints the summary, if a step was taken.
  void finish(long step, long samples, long memory_bytes);

 private:
  std::string directory_;
  LogConfig config_;
  Facts facts_;
  MetricsWriter metrics_;
  std::optional<TensorBoardWriter> tensorboard_;
  std::optional<Progress> progress_;
  const WorkMeter* meter_ = nullptr;

  std::int64_t begin_ns_ = 0;
  long begin_samples_ = 0;
  std::int64_t window_begin_ns_ = 0;  ///< when the steps of the next line began
  long window_step_ = 0;
  long window_samples_ = 0;
  RankWork window_work_;
  double training_seconds_ = 0;
  double last_loss_ = 0;
  std::optional<EvalRecord> last_evaluation_;
};

}  // namespace lockstep
