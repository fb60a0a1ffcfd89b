// The whole model seen from rank 0, for checkpoints of runs whose ranks have parts of it only.
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

/// Moves weights and optimiser state between the shares of all ranks and rank 0, tensor by tensor.
///
/// Rank 0 reads and writes through `view` while a Session lasts; meanwhile the others `serve`. No rank
/// has more than its share and messages of 4 MiB, unless rank 0 keeps a copy: four bytes an element
/// of the whole model and buffer, from which it can write while training goes on.
class WholeModel final : public TensorAccess {
 public:
  /// `whole` is the table of the whole model in one block a parameter; `shares` those of all ranks. All
  /// of it outlives this. Not collective.
  WholeModel(const ParameterTable& whole,
             std::vector<ModelShare> shares,
             ModelState& state,
             Communicator& world,
             bool keeps_copy,
             Queue& queue);

  /// On rank 0, which reads and writes tensors; ends the others' `serve` when it goes. Also where
  /// an exception passes.
  class Session {
   public:
    explicit Session(WholeModel& model) : model_(model) {}
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    WholeModel& model_;
  };
  /// On the other ranks: does what rank 0 asks for until its Session ends.
  void serve();

  /// Rank 0: every tensor, of a Session. Reads move each byte once, writes send it to all ranks.
  [[nodiscard]] ModelView view();
  /// Rank 0: the copy, as of the last update_copy.
  [[nodiscard]] ModelView copy() const;
  /// Collects all shares in the copy, if one is kept. Collective.
  void update_copy();

  void read(std::size_t buffer, const Parameter& parameter, float* canonical) override;
  void write(std::size_t buffer, const Parameter& parameter, const float* canonical) override;

  [[nodiscard]] bool keeps_copy() const { return keeps_copy_; }
  [[nodiscard]] std::size_t bytes() const { return copy_.bytes() + message_.bytes(); }

 private:
  /// What rank 0 asks the others for.
  enum class Task : std::uint8_t { kEnd, kRead, kWrite };
  struct Command {
    Task task = Task::kEnd;
    std::size_t buffer = 0;
    int parameter = 0;  ///< of `whole`
  };

  void send(const Command& command);
  void collect(std::size_t buffer, const Parameter& parameter, float* canonical);
  void collect_from(int from, std::size_t buffer, const Parameter& own, float* canonical);
  void distribute(std::size_t buffer, const Parameter& parameter, const float* canonical);
  void fill_own(std::size_t buffer, const std::string& name, IndexRange part);

  const ParameterTable* table_;
  std::vector<ModelShare> shares_;
  ModelState* state_;
  Communicator* world_;
  bool keeps_copy_;
  long message_floats_;
  Memory copy_;
  Memory message_;
};

/// Rank 0 calls work(model) with a view of the whole model; of a spread one (`whole` is not null) the
/// others bring it what it reads and take what it writes. Collective; what `work` throws comes out on
/// rank 0 alone.
template <typename Work>
void on_whole_model(WholeModel* whole, const ModelState& state, int rank, Work work) {
  if (rank != 0) {
    if (whole != nullptr) {
      whole->serve();
    }
    return;
  }
  if (whole == nullptr) {
    work(state.view());
    return;
  }
  const WholeModel::Session session(*whole);
  work(whole->view());
}

}  // namespace lockstep
