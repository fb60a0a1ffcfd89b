#include "nn/weights.h"

#include <algorithm>
#include <span>

#include "base/integers.h"
#include "base/philox.h"

namespace lockstep {
namespace {

void initialise_run(const Parameter& parameter,
                    const RandomStream& stream,
                    std::span<float> out,
                    long first_element) {
  const auto first = static_cast<std::uint64_t>(first_element);
  const auto scale = static_cast<float>(parameter.scale);
  switch (parameter.initialisation) {
    case Initialisation::kZero:
      break;
    case Initialisation::kOne:
      std::fill(out.begin(), out.end(), 1.0F);
      break;
    case Initialisation::kNormal:
      stream.fill_normal(first, out);
      std::transform(out.begin(), out.end(), out.begin(), [&](float x) { return scale * x; });
      break;
    case Initialisation::kUniform:
      stream.fill_uniform(first, out);
      std::transform(
          out.begin(), out.end(), out.begin(), [&](float x) { return scale * (2.0F * x - 1.0F); });
      break;
  }
}

}  // namespace

Matrix Weights::block(int parameter, int block) const {
  const Parameter& p = (*table_)[parameter];
  const auto unit = static_cast<std::size_t>(p.unit);
  void* const base = bases_ == nullptr ? flat_ : (*bases_)[unit];
  const long before = bases_ == nullptr ? 0 : table_->units()[unit].begin;
  const long element = p.offset + block * p.block_stride - before;
  return {static_cast<std::byte*>(base) + element * static_cast<long>(size_of(dtype_)),
          dtype_,
          p.block_rows,
          p.block_cols};
}

Matrix Gradients::block(int parameter, int block) const {
  const Parameter& p = (*table_)[parameter];
  const auto unit = static_cast<std::size_t>(p.unit);
  float* const base = bases_ == nullptr ? flat_ + table_->tied_size() : (*bases_)[unit];
  const long before = bases_ == nullptr ? 0 : table_->units()[unit].begin;
  return {
      base + p.offset + block * p.block_stride - before, DType::kF32, p.block_rows, p.block_cols};
}

void initialise(const ParameterTable& table,
                std::uint64_t seed,
                IndexRange range,
                float* values,
                ThreadPool& threads) {
  constexpr long kPiece = 1L << 16U;
  for (const Parameter& parameter : table.parameters()) {
    if (parameter.offset >= range.end ||
        parameter.offset + parameter.stored_elements() <= range.begin) {
      continue;
    }
    const RandomStream stream(
        seed, RandomPurpose::kInitialisation, site_of(parameter.name.c_str()));
    parameter.for_each_run([&](long canonical, long stored, long count) {
      const long first = parameter.offset + stored;  // in the flat buffer
      const long begin = std::max(first, range.begin);
      const long end = std::min(first + count, range.end);
      if (begin >= end) {
        return;
      }
      threads.run(ceil_div(end - begin, kPiece), [&](long piece) {
        const long from = begin + piece * kPiece;
        const long length = std::min(kPiece, end - from);
        initialise_run(parameter,
                       stream,
                       {values + (from - range.begin), static_cast<std::size_t>(length)},
                       canonical + from - first);
      });
    });
  }
}

}  // namespace lockstep
