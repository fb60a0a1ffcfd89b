// What a run trains: the weights and the optimiser's state in flat buffers, whole or sharded.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/memory.h"
#include "nn/parameter_table.h"
#include "nn/weights.h"
#include "optim/optimizer.h"
#include "parallel/model_view.h"

namespace lockstep {

/// How the state is spread over the data group (ZeRO: Rajbhandari et al., 2020). Stage 0: every rank
/// has all of it. From stage 1 on a rank has the optimiser's state, and f32 weights beside bf16 ones,
/// of the elements it owns, updates them, and gathers the updated weights from the others; the ranks of a
/// host share one copy of these. In stage 3 it keeps no other weights, and WeightSlots brings them while
/// they are used.
struct ShardPlan {
  int stage = 0;
  bool packed_gradients = false;       ///< as GradientReducer::is_packed
  Communicator* data_group = nullptr;  ///< from stage 1 on; outlives the state
  std::vector<IndexRange> buckets;     ///< as make_buckets gives them
  std::vector<IndexRange> owned;       ///< as owned_ranges gives them

  [[nodiscard]] bool is_sharded() const { return stage > 0; }
};

/// f32 master weights, their copy in the dtype of the matrix products (none for f32: layers then
/// read the master weights) and the optimiser's state.
class ModelState {
 public:
  /// Collective over the data group if sharded.
  ModelState(const ParameterTable& table,
             DType dtype,
             const OptimizerConfig& optimizer,
             ShardPlan shards,
             Queue& queue);
  /// All of it on this rank.
  ModelState(const ParameterTable& table,
             DType dtype,
             const OptimizerConfig& optimizer,
             Queue& queue)
      : ModelState(table, dtype, optimizer, {}, queue) {}

  /// Initial values of `seed`; the optimiser's state becomes zero.
  void initialise(std::uint64_t seed);

  /// Brings the copy in the dtype of the products up to date after the master weights were set from
  /// outside. Collective over the data group if sharded.
  void refresh_compute_copy();

  /// One update of the owned parameters; gradients is the result of a GradientReducer. If sharded,
  /// collective: gathers what the others updated (stages 1 and 2).
  void update(const float* gradients, double lr, float gradient_scale, long update_number);

  /// Of stages below 3.
  [[nodiscard]] Weights weights() const;
  /// Writes what this rank owns of the elements `part`, in the dtype of the products, to where they
  /// stand in a buffer whose first element is part.begin.
  void write_owned(IndexRange part, void* buffer) const;
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const ParameterTable& table() const { return *table_; }
  [[nodiscard]] const Optimizer& optimizer() const { return optimizer_; }

  /// Where the buffers hold element `flat` of the table's layout and its neighbours.
  struct Piece {
    long flat = 0;
    long master = 0;  ///< in buffer 0
    long state = 0;   ///< in the other buffers
    long count = 0;
  };
  /// The elements whose master weights and optimiser state this rank has, ascending.
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }
  /// The f32 master weights and the optimiser's state buffers.
  [[nodiscard]] std::vector<float*> buffers() const;
  [[nodiscard]] float* master() const { return master_.as<float>(); }
  /// Copies the elements `part` of the table's layout, which lie within a piece, from buffer number
  /// `buffer` to `values`, or back.
  void copy_out(std::size_t buffer, IndexRange part, float* values) const;
  void copy_in(std::size_t buffer, IndexRange part, const float* values);

  /// Of a state that is not sharded.
  [[nodiscard]] ModelView view() const;

  /// What this rank took: nothing where another rank of the host took the copy of all.
  [[nodiscard]] std::size_t master_bytes() const;
  [[nodiscard]] std::size_t compute_bytes() const;
  /// Of the above, what was taken from the data group.
  [[nodiscard]] std::size_t shared_bytes() const;

 private:
  [[nodiscard]] bool narrow() const { return dtype_ != DType::kF32; }
  [[nodiscard]] bool master_is_packed() const {
    return shards_.stage == 3 || (narrow() && shards_.is_sharded());
  }
  /// Whether `memory`, master_ or compute_, is that which ranks of a host share.
  [[nodiscard]] bool is_shared(const Memory& memory) const;
  [[nodiscard]] std::size_t taken(const Memory& memory) const;
  void gather_weights();
  void initialise_through_host(std::uint64_t seed, ThreadPool& threads);
  [[nodiscard]] float* address(std::size_t buffer, IndexRange part) const;

  const ParameterTable* table_;
  Queue* queue_;
  DType dtype_;
  ShardPlan shards_;
  std::vector<Piece> pieces_;
  Memory master_;
  Memory compute_;
  Optimizer optimizer_;
  std::vector<std::unique_ptr<Operation>> gathers_;  ///< one a bucket
};

}  // namespace lockstep
