#include "comm/mpi/tree_add.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

constexpr long kBlock = 1024;         // elements of a scratch row: a few rows fit in the L1 cache
constexpr int kMaxRows = 16;          // a row for every level of the tree: 32,768 ranks
constexpr long kPiece = 32 * kBlock;  // elements of a thread's task

// One pair of values an element and nothing to reorder: wider vectors change the speed only.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void add(const float* left, const float* right, float* to, long count) {
  // An element is read before it is written, so `to` may be `left` or `right` itself.
#pragma GCC ivdep
  for (long i = 0; i < count; ++i) {
    to[i] = left[i] + right[i];
  }
}

}  // namespace

TreeAdd::TreeAdd(std::span<const TreeNode> nodes, TreeNode root, long leaves)
    : num_inputs_(static_cast<int>(nodes.size())), result_(compile(nodes, root, leaves, 0)) {}

int TreeAdd::compile(std::span<const TreeNode> nodes, TreeNode root, long leaves, int free_row) {
  const auto found = std::find(nodes.begin(), nodes.end(), root);
  if (found != nodes.end()) {
    return static_cast<int>(found - nodes.begin());
  }
  LOCKSTEP_CHECK(root.level > 0 && free_row < kMaxRows);
  // While the right side is computed, free_row holds the left one; the sum then replaces it.
  const int left = compile(nodes, root.left(), leaves, free_row);
  if (root.right().first_leaf() >= leaves) {
    return left;
  }
  const int right = compile(nodes, root.right(), leaves, free_row + (left >= num_inputs_ ? 1 : 0));
  steps_.push_back({left, right, free_row});
  return num_inputs_ + free_row;
}

void TreeAdd::run(std::span<const float* const> inputs,
                  std::span<float* const> outputs,
                  long count,
                  ThreadPool* threads) const {
  LOCKSTEP_CHECK(static_cast<int>(inputs.size()) == num_inputs_);
  if (threads == nullptr || count < 2 * kPiece) {
    run_range(inputs, outputs, 0, count);
    return;
  }
  threads->run(ceil_div(count, kPiece), [&](long piece) {
    run_range(inputs, outputs, piece * kPiece, std::min(count, (piece + 1) * kPiece));
  });
}

void TreeAdd::run_range(std::span<const float* const> inputs,
                        std::span<float* const> outputs,
                        long begin,
                        long end) const {
  alignas(64) std::array<std::array<float, kBlock>, kMaxRows> rows;  // NOLINT: written before read
  for (long first = begin; first < end; first += kBlock) {
    const long count = std::min(kBlock, end - first);
    const auto operand = [&](int index) -> const float* {
      return index < num_inputs_ ? inputs[static_cast<std::size_t>(index)] + first
                                 : rows[static_cast<std::size_t>(index - num_inputs_)].data();
    };
    for (const Step& step : steps_) {
      add(operand(step.left),
          operand(step.right),
          rows[static_cast<std::size_t>(step.to)].data(),
          count);
    }
    const float* result = operand(result_);
    for (float* output : outputs) {
      if (output + first != result) {
        std::memcpy(output + first, result, static_cast<std::size_t>(count) * sizeof(float));
      }
    }
  }
}

}  // namespace lockstep
