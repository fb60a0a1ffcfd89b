#include "tensor/activation_stack.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

constexpr std::size_t kMeasuredRange = std::size_t{1} << 44U;  // addresses only, no memory

}  // namespace

ActivationStack::ActivationStack(Queue& queue, std::size_t capacity)
    : memory_(queue.allocate(capacity)) {}

ActivationStack::ActivationStack(Queue& dry_queue) {
  LOCKSTEP_CHECK(dry_queue.kind() == DeviceKind::kDry);
  memory_ = dry_queue.allocate(kMeasuredRange);
}

void* ActivationStack::push(std::size_t bytes) {
  const std::size_t offset = used_;
  used_ += round_up(bytes, kMemoryAlignment);
  LOCKSTEP_CHECK(used_ <= memory_.bytes());
  peak_ = std::max(peak_, used_);
  return memory_.data() + offset;
}

Matrix ActivationStack::push(DType dtype, long rows, long cols) {
  return {push(static_cast<std::size_t>(rows * cols) * size_of(dtype)), dtype, rows, cols};
}

void ActivationStack::pop_to(Mark mark) {
  LOCKSTEP_CHECK(mark <= used_);
  used_ = mark;
}

}  // namespace lockstep
