// The gradient of a tied embedding whose two uses are on the first and on the last rank of a pipeline.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "device/queue.h"
#include "parallel/gradient_reducer.h"

namespace lockstep {

/// Adds up the two sides, each complete over the data group, on both ranks alike. A rank without a shared
/// parameter has nothing to do.
class SharedGradient {
 public:
  /// `owned`: elements of the parameters of which this rank has sums, `pieces`: where those are. Not
  /// collective.
  SharedGradient(const ParameterTable& table,
                 const std::vector<IndexRange>& owned,
                 const std::vector<GradientPiece>& pieces,
                 Communicator& pipeline,
                 Queue& queue);

  /// Both ranks call it once a step. Cost: each sends what it owns of the gradient.
  void add(float* gradients);

  [[nodiscard]] std::size_t bytes() const { return received_.bytes(); }

 private:
  struct Part {
    long offset = 0;  ///< in the result of the reducer
    long count = 0;
    float* received = nullptr;
    std::unique_ptr<Operation> receive;
  };

  Communicator* group_;
  Queue* queue_;
  int peer_;
  Memory received_;
  std::vector<Part> parts_;
  /// Made at the first call, when the address of the gradients is known.
  std::vector<std::unique_ptr<Operation>> sends_;
  const float* sent_from_ = nullptr;
};

}  // namespace lockstep
