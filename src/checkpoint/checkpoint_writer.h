// Writes checkpoints, if asked while training goes on.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <thread>

#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_config.h"
#include "device/memory.h"

namespace lockstep {

/// Used by the one rank that writes. A checkpoint appears by rename after every file in it has
/// reached the disk; the newest `keep` stay.
class CheckpointWriter {
 public:
  /// `run_directory` exists. With config.async_write it writes on a thread, from a copy for which it
  /// takes memory (staging_bytes) unless `is_copy` says that `model` is one, which changes only
  /// between a `wait` and a `save`. Takes memory for one tensor, too.
  CheckpointWriter(std::string run_directory,
                   const CheckpointConfig& config,
                   ModelView model,
                   bool is_copy,
                   Queue& queue);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Saves the present weights and optimiser state. Waits for the checkpoint before. A failure to
  /// write (a full disk, say) leaves the older checkpoints and is thrown as Error by this call, or
  /// for async_write by the next one or by `wait`.
  void save(const RunState& state);

  /// Returns once the last checkpoint is durable.
  void wait();

  /// hash_of_model of the last checkpoint that was written, found on the way. To be called after `wait`.
  [[nodiscard]] std::uint64_t written_hash() const { return written_hash_; }

  /// Room for the largest tensor of the model, for others to use until the next `save`.
  [[nodiscard]] float* room() const { return tensor_.as<float>(); }

  static std::size_t staging_bytes(const CheckpointConfig& config,
                                   const ModelView& model,
                                   bool is_copy);

 private:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t hash = 0;
  };

  File write_tensors(const std::string& folder,
                     const std::string& name,
                     std::size_t first_buffer,
                     std::size_t end_buffer,
                     Hasher& values) const;
  static File write_text(const std::string& folder,
                         const std::string& name,
                         const std::string& text);
  void write(const RunState& state);
  void remove_old() const;

  std::string directory_;
  CheckpointConfig config_;
  ModelView model_;
  Memory staging_;
  Memory tensor_;     ///< the one that is being written
  ModelView source_;  ///< what is written: `model`, or the copy
  std::uint64_t written_hash_ = 0;
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace lockstep
