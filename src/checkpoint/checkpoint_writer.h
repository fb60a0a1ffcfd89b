// Writes checkpoints, if asked while training goes on.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_config.h"
#include "device/memory.h"

namespace lockstep {

/// Used by the one rank that writes. A checkpoint appears by rename after every file in it has
/// reached the disk; the newest `keep` stay.
class CheckpointWriter {
 public:
  /// `run_directory` exists. With config.async_write it takes memory for a copy of everything that
  /// is saved (staging_bytes), and writes it on a thread.
  CheckpointWriter(std::string run_directory,
                   const CheckpointConfig& config,
                   const ModelState& state,
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

  static std::size_t staging_bytes(const CheckpointConfig& config,
                                   std::size_t flat_bytes,
                                   std::size_t num_states);

 private:
  struct Buffer {
    std::string name;  ///< "" for the weights
    const float* data = nullptr;
  };

  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t hash = 0;
  };

  File write_tensors(const std::string& folder,
                     const std::string& name,
                     std::span<const Buffer> buffers) const;
  static File write_text(const std::string& folder,
                         const std::string& name,
                         const std::string& text);
  void write(const RunState& state);
  void remove_old() const;

  std::string directory_;
  CheckpointConfig config_;
  const ModelState* model_;
  Memory staging_;
  std::vector<Buffer> buffers_;
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace lockstep
