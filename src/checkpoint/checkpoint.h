// Checkpoints: folders that are either complete or not there.
//
//   <run>/checkpoints/step-00000500/  model-00000.safetensors      weights, f32, as the user sees them
//                                     optimizer-00000.safetensors  "<state>.<parameter>"
//                                     state.json                   counters, layout, sizes
//                                     COMPLETE                     size and XXH3 of each file above
//   <run>/checkpoints/latest          symbolic link to the newest
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/model_config.h"
#include "parallel/model_view.h"

namespace lockstep {

/// Everything but weights that the next step reads, and what says whether a checkpoint fits.
struct RunState {
  long step = 0;     ///< updates done
  long samples = 0;  ///< samples consumed: the position in the data
  long tokens = 0;
  std::uint64_t seed = 1;
  int virtual_data = 1;
  int virtual_tensor = 1;
  std::string accumulate = "fold-tree";
  std::string precision = "f32";
  std::string optimizer = "adamw";
  std::string fingerprint;  ///< of what decides bits on a machine
  std::string weights_hash;
  ModelConfig model;
};

/// A checkpoint that was found complete.
struct CheckpointLocation {
  std::string path;
  RunState state;
};

/// Reads state.json of a checkpoint folder. Errors: RequestError naming the file.
RunState read_run_state(const std::string& checkpoint);

/// Checks COMPLETE: every file is there with its size and, if `checksums`, its XXH3 (reads all
/// bytes). Returns what is wrong, or "".
std::string find_damage(const std::string& checkpoint, bool checksums);

/// The newest complete checkpoint of a run's folder; damaged and unfinished ones are named in the
/// log and passed over. Called by one rank.
std::optional<CheckpointLocation> find_newest_checkpoint(const std::string& run_directory);

/// SOURCE as users give it: a checkpoint's folder, a run's folder or its checkpoints folder.
/// Errors: RequestError when there is no complete checkpoint.
CheckpointLocation locate_checkpoint(const std::string& source);

/// Reads weights and, unless `weights_only`, the optimiser's state into the buffers of `model`. Errors:
/// RequestError naming the parameter that is missing or has another shape, before anything is changed.
void load_checkpoint(const std::string& checkpoint, const ModelView& model, bool weights_only);

}  // namespace lockstep
