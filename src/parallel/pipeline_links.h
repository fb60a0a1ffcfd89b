// What the stages of a pipeline send each other: activations to the next one, gradients back.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/queue.h"
#include "nn/pass.h"
#include "parallel/pipeline_schedule.h"

namespace lockstep {

/// Buffers and messages of one rank. Everything is set up once. A message always has the size of a whole
/// micro-batch, so that a smaller one needs nothing of its own.
///
/// For micro-batches 0, 1, ... of a step in order, for each chunk: `expect_input` some time before the
/// pass that needs it, `input`, then after the pass `send_output`; likewise for gradients. A buffer is
/// used again only when its message has left; there are so many that no rank ever waits for that while
/// another waits for it (one more than micro-batches that can be between forward and backward here, or
/// on the rank before).
class PipelineLinks {
 public:
  struct Sizes {
    long rows = 0;  ///< of a whole micro-batch that norms work on
    long cols = 0;
    DType dtype = DType::kF32;
    /// Most micro-batches between forward and backward, by rank of the pipeline and chunk.
    std::vector<std::vector<long>> in_flight;
    int chunks = 1;
  };

  /// Not collective. `pipeline` outlives this.
  PipelineLinks(Communicator& pipeline, const Sizes& sizes, Queue& queue);

  /// Starts to receive what the forward (or backward) of `micro_batch` needs; nothing where the stage
  /// needs nothing.
  void expect_input(int chunk, long micro_batch);
  void expect_gradient(int chunk, long micro_batch);

  /// What a pass of `batch_rows` rows reads and writes; waits for what must have come or left.
  PassBoundary forward_boundary(int chunk, long micro_batch, long batch_rows);
  PassBoundary backward_boundary(int chunk, long micro_batch, long batch_rows);
  /// Of the weight part of a backward pass, which neither reads nor writes what stages hand over.
  [[nodiscard]] PassBoundary weight_boundary(int chunk, long micro_batch) const;

  /// Sends what the pass wrote; does not wait.
  void send_output(int chunk, long micro_batch);
  void send_gradient(int chunk, long micro_batch);

  /// Waits until all messages have left.
  void finish();

  [[nodiscard]] int slots(int chunk) const;
  [[nodiscard]] std::size_t bytes() const { return memory_.bytes(); }

 private:
  struct Buffer {
    void* data = nullptr;
    std::unique_ptr<Operation> receive;
    std::unique_ptr<Operation> send;
    bool is_expected = false;
  };
  struct Chunk {
    bool is_first = false;  ///< of the whole pipeline
    bool is_last = false;
    std::vector<Buffer> inputs;
    std::vector<Buffer> outputs;
    std::vector<Buffer> gradients;
  };

  [[nodiscard]] Chunk& chunk(int index) { return chunks_[static_cast<std::size_t>(index)]; }
  static Buffer& of(std::vector<Buffer>& buffers, long micro_batch) {
    return buffers[static_cast<std::size_t>(micro_batch) % buffers.size()];
  }
  [[nodiscard]] Matrix matrix(const Buffer& buffer, long rows) const;
  [[nodiscard]] long in_flight(int global_stage) const;
  void count_buffers(int index);
  void make_operations(int index);
  static void expect(Buffer& buffer);
  static void wait_for_sends(const std::vector<Buffer>& buffers);

  Communicator* group_;
  Sizes sizes_;
  std::size_t message_bytes_;
  std::vector<Chunk> chunks_;
  Memory memory_;
};

}  // namespace lockstep
