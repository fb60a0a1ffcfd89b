// The whole model on rank 0, for checkpoints of runs whose ranks have parts of it only.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/memory.h"
#include "device/queue.h"
#include "parallel/model_state.h"
#include "parallel/model_view.h"

namespace lockstep {

/// Where a rank's share of the model lies.
struct ModelShare {
  const ParameterTable* table = nullptr;
  std::vector<IndexRange> owned;  ///< elements of its flat buffer that it updates
  bool is_needed = true;          ///< false: another rank has the same
};

/// Moves weights and optimiser state between the shares of all ranks and flat buffers on rank 0 whose
/// table has one block a parameter. Rank 0 takes memory for the whole model, four bytes an element
/// and buffer; all take a message buffer.
class WholeModel {
 public:
  /// `whole` is the table of the whole model in one block a parameter; `shares` those of all ranks. All
  /// of it outlives this. Not collective.
  WholeModel(const ParameterTable& whole,
             std::vector<ModelShare> shares,
             ModelState& state,
             Communicator& world,
             Queue& queue);

  /// The buffers of rank 0; none elsewhere.
  [[nodiscard]] ModelView view() const;

  /// Collects all shares on rank 0. Collective. Cost: each byte travels once, in messages of 4 MiB.
  void gather();
  /// Fills the first `num_buffers` buffers of every rank's share from rank 0's. Collective.
  void spread(std::size_t num_buffers);

  [[nodiscard]] std::size_t bytes() const { return whole_.bytes() + message_.bytes(); }

 private:
  void gather_from(int from);
  void place(const ModelShare& share, IndexRange part, float* message, float* buffer) const;
  void fill_own(IndexRange whole_part, std::size_t buffer);

  const ParameterTable* table_;
  std::vector<ModelShare> shares_;
  ModelState* state_;
  Communicator* world_;
  long message_floats_;
  Memory whole_;
  Memory message_;
};

}  // namespace lockstep
