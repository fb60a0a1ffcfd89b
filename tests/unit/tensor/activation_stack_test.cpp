#include "tensor/activation_stack.h"

#include <cstdint>
#include <stdexcept>

#include "device/cpu/cpu_queue.h"
#include "device/dry/dry_queue.h"
#include "support/catch.h"

namespace lockstep {

TEST_CASE("the activation stack is last-in-first-out and aligned") {
  CpuQueue queue(1);
  ActivationStack stack(queue, 4096);
  const auto start = stack.mark();
  auto* first = stack.push_array<float>(3);
  const auto after_first = stack.mark();
  auto* second = stack.push_array<float>(5);

  stack.pop_to(after_first);
  auto* again = stack.push_array<double>(1);

  CHECK(reinterpret_cast<std::uintptr_t>(first) % kMemoryAlignment == 0);
  CHECK(static_cast<void*>(again) == static_cast<void*>(second));
  CHECK(stack.peak_bytes() == 2 * kMemoryAlignment);
  stack.pop_to(start);
  CHECK_THROWS_AS(stack.pop_to(after_first), std::logic_error);
  CHECK_THROWS_AS(stack.push(5000), std::logic_error);
}

TEST_CASE("a dry stack tells the capacity that a real one needs") {
  DryQueue dry;
  ActivationStack measured(dry);
  {
    const StackScope scope(measured);
    measured.push(100);
    measured.push(1);
  }
  measured.push(64);

  CHECK(measured.peak_bytes() == 192);
}

}  // namespace lockstep
