// The f32 matrix product of the CPU: packed strips of the operands and a register-blocked kernel
// (Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
//
// Every element of the product is, for each block of kInnerBlock inner indices in turn, a chain of
// fused multiply-adds from zero, added to what the earlier blocks gave. How the matrices are cut
// into strips, blocks and threads therefore decides no bit, nor do the other rows and columns.
#pragma once

#include "base/dtype.h"

namespace lockstep {

/// Most inner indices that are accumulated in registers before the sum goes to memory.
inline constexpr long kInnerBlock = 384;

/// An operand, f32 or bf16, seen from the product: "outer" indices are the rows of op(a) or the
/// columns of op(b), "inner" ones are summed over. One of the strides is 1.
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  long outer_stride = 0;
  long inner_stride = 0;
};

/// A part of an operand's index range.
struct GemmRange {
  long outer_begin = 0;
  long outer_end = 0;
  long inner_begin = 0;
  long inner_end = 0;
};

/// A strip holds `outer` outer indices in `width` >= outer floats for each inner index.
struct StripShape {
  long outer = 0;
  long width = 0;
};

/// The register block of the instruction set in use: rows of c in a strip of a, columns in one of b.
struct GemmStrips {
  StripShape a;
  StripShape b;
};
GemmStrips gemm_strips();

/// Copies a range of an operand, converted to f32, as strips: strip s holds the outer indices from
/// s * shape.outer on as [inner][width] floats. What a strip holds beside its outer indices is not
/// specified. `packed` is aligned to 64 bytes and holds ceil(outer / shape.outer) * width * inner
/// floats; shape.width is that of gemm_strips, shape.outer at most.
void pack_strips(const GemmOperand& operand,
                 const GemmRange& range,
                 StripShape shape,
                 float* packed);

/// c[rows x cols] (+)= a * b over `inner` indices. b is packed; a is packed, or any f32 matrix.
struct StripProduct {
  const float* a = nullptr;
  long a_strip_rows = 0;  ///< at most the register block's
  long a_outer_stride = 0;
  long a_inner_stride = 0;
  long a_strip_stride = 0;
  const float* b = nullptr;
  long rows = 0;
  long cols = 0;
  long inner = 0;
  float* c = nullptr;
  long c_stride = 0;
  bool add = false;
};
void multiply_strips(const StripProduct& product);

/// Rounds rows of f32 to bf16.
void round_rows(
    const float* from, long from_stride, void* to, long to_stride, long rows, long cols);

}  // namespace lockstep
