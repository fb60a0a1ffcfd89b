#include "kernels/embedding.h"

#include "kernels/dispatch.h"

namespace lockstep {

Cost Embedding::cost() const {
  const auto elements = static_cast<double>(out.size());
  double bytes =
      static_cast<double>(out.bytes()) + elements * static_cast<double>(size_of(table.dtype));
  if (positions) {
    bytes += static_cast<double>(positions.bytes());
  }
  return {positions ? elements : 0.0, bytes + static_cast<double>(out.rows) * 4.0};
}

void launch(Queue& queue, const Embedding& op) {
  dispatch(queue, op);
}

Cost EmbeddingBackward::cost() const {
  const auto elements = static_cast<double>(dout.size());
  double bytes =
      static_cast<double>(dout.bytes()) + 2 * elements * static_cast<double>(size_of(dtable.dtype));
  if (dpositions) {
    bytes += 2 * static_cast<double>(dpositions.bytes());
  }
  return {dpositions ? 2 * elements : elements,
          bytes + static_cast<double>(dout.rows) * sizeof(*tokens)};
}

void launch(Queue& queue, const EmbeddingBackward& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
