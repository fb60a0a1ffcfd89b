// How far a run is: a live line on a terminal, plain lines in the log elsewhere, a table at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "training/metrics.h"

namespace lockstep {

/// What the display needs to know of a run.
struct ProgressOptions {
  long first_step = 1;  ///< of this start; later than 1 after a resume
  long last_step = 0;
  long log_interval = 10;  ///< steps between plain lines
  bool live = true;        ///< log.progress; has no effect where the output is no terminal
};

/// Shows the steps of one run on one rank. On a terminal it rewrites one line, at most ten times a
/// second, and wipes it before anything is logged; elsewhere it logs a line when is_logged_step().
class Progress {
 public:
  /// `descriptor` is where the console's log goes (standard error). Construct it after log::start
  /// and while no other thread logs; likewise destroy it, which wipes the line.
  explicit Progress(const ProgressOptions& options, int descriptor = 2);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// After each step. `now` is a value of now_ns(). Write errors are ignored: a display that is gone
  /// must not end a run.
  void update(const TrainRecord& record, std::int64_t now = now_ns());

  /// Wipes the live line, before something else is printed (log messages need no call).
  void clear();

  [[nodiscard]] bool live() const { return live_; }

 private:
  class Line;  // shared with the sink that wipes it

  ProgressOptions options_;
  bool live_ = false;
  std::int64_t begin_ns_;
  std::int64_t shown_ns_ = 0;
  std::shared_ptr<Line> line_;
};

/// "step 120/1000 | loss 2.3456 | lr 1.00e-03 | 12.3 k tokens/s | 3m 12s left". What is unknown is
/// left out: a rate that is not above 0, a time left (seconds) that is negative.
std::string progress_text(const TrainRecord& record, long last_step, double seconds_left);

/// What a run came to.
struct RunSummary {
  long steps = 0;  ///< updates done over all starts
  double loss = 0.0;
  std::optional<EvalRecord> evaluation;
  double tokens_per_second = 0.0;  ///< global, the mean of this start; 0: not applicable
  double seconds = 0.0;            ///< wall time of this start
  long memory_bytes = 0;           ///< as in metrics.jsonl
  std::string output_dir;
  RankWork work{};  ///< of the printing rank, the mean of a step of this start
};

/// The table that is printed at the end: a label and a value a line, each line ended by a newline.
std::string summary_table(const RunSummary& summary);

}  // namespace lockstep
