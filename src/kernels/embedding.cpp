#include "kernels/embedding.h"

#include "base/integers.h"
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

long EmbeddingBackward::num_tiles() const {
  return ceil_div(dout.rows, kEmbeddingTileRows);
}

// Two lists of rows, and a place for each digit of each tile.
std::size_t EmbeddingBackward::cuda_workspace_bytes() const {
  return static_cast<std::size_t>(2 * dout.rows + num_tiles() * kEmbeddingDigits) *
         sizeof(std::int32_t);
}

void launch(Queue& queue, const EmbeddingBackward& op) {
  dispatch(queue, op);
}

}  // namespace lockstep
