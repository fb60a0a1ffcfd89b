// Pipeline schedules as tables: which rank runs which pass of which micro-batch, in what order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class ScheduleKind : std::uint8_t {
  kGpipe,
  kOneForwardOneBackward,
  kInterleaved,
  kZeroBubble
};

/// The spelling of `parallel.schedule`: gpipe | 1f1b | interleaved | zero-bubble.
std::string_view name_of(ScheduleKind kind);

/// The inverse of name_of. Throws RequestError for any other name.
ScheduleKind schedule_kind(std::string_view name);

/// A schedule splits its backward passes (kBackwardInput and kBackwardWeight) or does not
/// (kBackward).
enum class SchedulePass : std::uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight };

/// "forward", "backward", "backward_input", "backward_weight"
std::string_view name_of(SchedulePass pass);

/// One pass that a rank runs.
struct ScheduleEntry {
  SchedulePass pass = SchedulePass::kForward;
  int chunk = 0;  ///< of the rank's model chunks: 0 <= chunk < virtual_stages
  long micro_batch = 0;

  bool operator==(const ScheduleEntry&) const = default;
};

/// An entry and the rank that runs it.
struct RankEntry {
  int rank = 0;
  ScheduleEntry entry;
};

/// What every rank of a pipeline runs in a step. The model is cut into stages * virtual_stages
/// global stages; global stage g lives on rank g % stages as chunk g / stages.
///
/// A rank runs its list from front to back. Before an entry it waits for what incoming() names; it
/// sends results without waiting until they are received (blocking sends would lock ranks up).
/// Within a rank and chunk each kind of pass runs in ascending order of micro-batches: gradients
/// are folded in that order, so that the schedule does not change bits.
struct PipelineSchedule {
  ScheduleKind kind = ScheduleKind::kOneForwardOneBackward;
  int stages = 1;          ///< ranks of the pipeline
  int virtual_stages = 1;  ///< model chunks a rank
  long micro_batches = 1;
  std::vector<std::vector<ScheduleEntry>> ranks;  ///< of each rank its entries in order

  [[nodiscard]] int global_stages() const { return stages * virtual_stages; }
  [[nodiscard]] int global_stage(int rank, int chunk) const { return chunk * stages + rank; }
  [[nodiscard]] bool splits_backward() const { return kind == ScheduleKind::kZeroBubble; }

  /// The pass of the neighbouring global stage whose result `entry` of `rank` starts from: the
  /// forward of the stage before, or the backward (backward_input) of the stage behind. None for
  /// the ends of the pipeline and for backward_weight. It is a message unless it lives on the same
  /// rank, which happens with stages == 1 only.
  [[nodiscard]] std::optional<RankEntry> incoming(int rank, const ScheduleEntry& entry) const;

  /// The entry of the same rank whose activations `entry` needs: a backward its forward, a
  /// backward_weight its backward_input. None for a forward.
  [[nodiscard]] static std::optional<ScheduleEntry> own_input(const ScheduleEntry& entry);

  /// "forward of micro-batch 3"; with several chunks "... in chunk 1" behind it.
  [[nodiscard]] std::string describe(const ScheduleEntry& entry) const;
};

/// Generates a schedule, for any number of micro-batches from 1, also fewer than stages:
/// - gpipe: all forwards, then all backwards (ascending, too).
/// - 1f1b: rank r runs stages - 1 - r forwards, then forward and backward in turn.
/// - interleaved (Narayanan et al., 2021): the same over virtual_stages chunks a rank, which micro-
///   batches visit in groups of `stages`. A last, smaller group keeps the places of a whole one
///   and leaves those of missing micro-batches out. (Closing ranks instead, rank 0 can wait for a
///   forward of the last rank that stands behind a backward which waits for rank 0.)
/// - zero-bubble (ZB-H1 of Qi et al., 2023): 1f1b with split backwards. On every rank the weight
///   gradient lags stages - 1 micro-batches behind the forward, so that all ranks keep as many
///   activations as the first one of 1f1b, and weight gradients fill what were bubbles. Each also has
///   room for what lies between the parts of a backward pass (BackwardPart).
/// Throws RequestError, naming parallel.pipeline, parallel.schedule or parallel.virtual_stages,
/// unless virtual_stages is 1 (interleaved: at least 2), all sizes are at least 1 and the table has
/// at most 2^24 entries. Cost: linear in the number of entries (16 bytes each).
PipelineSchedule make_schedule(ScheduleKind kind,
                               long stages,
                               long virtual_stages,
                               long micro_batches);

}  // namespace lockstep
