// Reads the micro-batches of one rank, step after step, one step ahead where that pays.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/sample_order.h"

namespace lockstep {

/// A micro-batch in memory; the pointers are those of SampleBuffers.
struct MicroBatch {
  long index = 0;         ///< its number in the global batch
  long first_sample = 0;  ///< its first sample's number in the global batch
  long num_samples = 0;
  const std::int32_t* tokens = nullptr;
  const float* features = nullptr;
  const std::int32_t* targets = nullptr;
};

/// What one rank needs of one step.
struct StepBatch {
  long step = 0;
  long num_samples = 0;                       ///< of the whole global batch, over all ranks
  long num_micro_batches = 0;                 ///< of the whole global batch
  long num_targets = 0;                       ///< trained targets of the whole global batch
  std::span<const MicroBatch> micro_batches;  ///< this rank's, by index; perhaps none
};

/// Whether a thread reads ahead. kAuto: when a step's own bytes exceed kReadAheadBytes, because
/// handing less to a thread costs more than reading it.
enum class ReadAhead : std::uint8_t { kAuto, kInline, kThread };
inline constexpr long kReadAheadBytes = 1L << 20U;

struct BatchReaderOptions {
  long micro_batch_size = 1;
  /// This rank owns the virtual ranks [virtual_begin, virtual_end) of num_virtual: of M micro-batches
  /// those from part_of(M, num_virtual, virtual_begin).begin to that of virtual_end - 1's end.
  long num_virtual = 1;
  long virtual_begin = 0;
  long virtual_end = 1;
  long first_step = 0;  ///< where next() starts: the number of steps already done
  ReadAhead read_ahead = ReadAhead::kAuto;
};

/// Not thread-safe: one thread calls next(). Allocates in its constructor only.
class BatchReader {
 public:
  /// `dataset` must outlive the reader; `order` and `plan` are copied and are of its num_samples().
  BatchReader(const Dataset& dataset,
              const SampleOrder& order,
              const BatchPlan& plan,
              const BatchReaderOptions& options);
  ~BatchReader();
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  /// Whether a step is left.
  [[nodiscard]] bool has_next() const { return next_step_ < plan_.num_steps(); }

  /// The next step's batch, valid until next() is called again. Must not be called without
  /// has_next(). Errors: what reading threw, also on the reading thread; after that the reader throws
  /// the same again.
  const StepBatch& next();

  /// Bytes of all buffers for samples.
  [[nodiscard]] std::uint64_t buffer_bytes() const;

  /// What buffer_bytes() of a reader of such a data set will be.
  static std::uint64_t planned_bytes(const DatasetInfo& dataset,
                                     const BatchPlan& plan,
                                     const BatchReaderOptions& options);

  [[nodiscard]] bool reads_ahead() const { return reader_.joinable(); }

 private:
  struct Slot {
    std::vector<std::int32_t> tokens;
    std::vector<float> features;
    std::vector<std::int32_t> targets;
    std::vector<MicroBatch> micro_batches;
    StepBatch batch;
  };

  /// What the buffers have to hold.
  struct Needs {
    long micro_batches = 0;
    long samples = 0;  ///< in a slot
    long numbers = 0;  ///< of samples, in samples_
    bool thread = false;
  };

  static Needs needs_of(const DatasetInfo& dataset,
                        const BatchPlan& plan,
                        const BatchReaderOptions& options);
  void allocate(Slot& slot, long num_samples, long num_micro_batches) const;
  void fill(Slot& slot, long step);
  [[nodiscard]] long count_all_targets(const GlobalBatch& batch);
  void read_ahead();
  [[nodiscard]] Slot& slot_of(long step) { return slots_[static_cast<std::size_t>(step) % 2]; }

  const Dataset& dataset_;
  const SampleOrder order_;
  const BatchPlan plan_;
  const BatchReaderOptions options_;
  std::array<Slot, 2> slots_;  // only the first is used without a thread
  std::vector<long> samples_;  // scratch of fill()
  long next_step_;

  std::mutex mutex_;
  std::condition_variable changed_;
  long wanted_step_ = 0;  // the thread fills steps below this
  long filled_step_ = 0;  // steps below this are filled
  bool stop_ = false;
  std::exception_ptr failure_;
  std::thread reader_;
};

}  // namespace lockstep
