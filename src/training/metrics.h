// The numbers of a run: metrics.jsonl, and the same as TensorBoard scalars.
#pragma once

#include <limits>
#include <string>

#include "formats/json_lines.h"
#include "formats/tensorboard.h"
#include "training/rank_work.h"

namespace lockstep {

/// One optimiser step. `step` is the number of updates done, so the first is 1; `epoch`, `samples`
/// and `tokens` count from the start of the run. All but seconds, tokens_per_second and
/// mfu are reproducible; memory_bytes and work on the same mesh.
struct TrainRecord {
  long step = 0;
  double epoch = 0.0;
  long samples = 0;
  long tokens = 0;
  double loss = 0.0;       ///< mean over the global batch's targets, before the update
  double grad_norm = 0.0;  ///< before clipping
  double lr = 0.0;
  double seconds = 0.0;
  double tokens_per_second = 0.0;  ///< over all ranks
  double mfu = 0.0;                ///< NaN: the peak is not known
  long memory_bytes = 0;           ///< the largest rank's peak of what we allocate
  RankWork work;                   ///< of the writing rank, mean of the steps since the last line
};

/// One evaluation, after `step` updates.
struct EvalRecord {
  long step = 0;
  double loss = 0.0;
  double perplexity = 0.0;
  double accuracy = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not a classification
};

/// Whether a train line is due: step 1, every `interval`-th and the last. Interval 0: the first and
/// the last only.
constexpr bool is_logged_step(long step, long interval, long last_step) {
  return step == 1 || step == last_step || (interval > 0 && step % interval == 0);
}

/// Writes <output_dir>/metrics.jsonl. One rank only; never allocates between lines.
class MetricsWriter {
 public:
  /// Opens or creates the file and drops a torn last line. Throws Error.
  explicit MetricsWriter(const std::string& path) : lines_(path) {}

  /// Appends a line; its keys and their order are part of the interface. A value that is not finite
  /// is null. A line is complete in the file when this returns. Throws Error on a full disk.
  void write(const TrainRecord& record);

  /// As above; the key "accuracy" is left out when it is NaN.
  void write(const EvalRecord& record);

  /// Removes every line of a step after `step`, atomically: at the resume from the checkpoint of
  /// `step` (0: a new run in an old folder), so that no step appears twice. The lines of `step`
  /// itself stay: write them before its checkpoint becomes visible. Throws RequestError when a line
  /// is not an object with an integer "step": naming the file and the line, changing nothing.
  void truncate_after(long step);

  /// Returns once all lines are on the disk: before a checkpoint becomes visible, and at the end.
  void sync() { lines_.file().sync(); }

 private:
  JsonLinesWriter lines_;
};

/// Appends train/loss, train/grad_norm, train/lr, train/tokens_per_second, train/memory_bytes,
/// train/bytes_sent and, when it is known, train/mfu.
void write_scalars(TensorBoardWriter& writer, const TrainRecord& record);

/// Appends eval/loss, eval/perplexity and, when there is one, eval/accuracy.
void write_scalars(TensorBoardWriter& writer, const EvalRecord& record);

}  // namespace lockstep
