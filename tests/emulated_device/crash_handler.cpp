#include "emulated_device/crash_handler.h"

#include <csignal>
#include <cstddef>
#include <cstdint>

#include <ucontext.h>

#include "emulated_device/fault.h"
#include "emulated_device/kernel_run.h"
#include "emulated_device/memory.h"

namespace lockstep::emulated {
namespace {

// The processor stops after the next instruction.
constexpr greg_t kTrapFlag = 0x100;

struct sigaction handler_before;
std::uintptr_t opened_page = 0;

const void* code_of(const ucontext_t& context) {
  // One further, as behind a call: source_place goes one back.
  return reinterpret_cast<const char*>(context.uc_mcontext.gregs[REG_RIP]) + 1;
}

void handle_crash(int number, siginfo_t* info, void* raw_context) {
  auto& context = *static_cast<ucontext_t*>(raw_context);
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const void* const code = code_of(context);
  const Region* const region = find_region(address);
  if (is_stack_guard(address)) {
    fault_at(code, "a kernel's thread needs more than {} bytes of stack", kStackBytes);
  }
  if (region != nullptr && region->device >= 0) {
    fault_at(code, "the host touches memory of a device: {}", describe_address(address));
  }
  if (region != nullptr) {
    const PinnedState state = find_pinned_use(address);
    if (state == PinnedState::kRead) {
      fault_at(code,
               "the host writes pinned memory that a copy still reads: {}",
               describe_address(address));
    }
    if (state == PinnedState::kWritten) {
      fault_at(code,
               "the host touches pinned memory that a copy still writes: {}",
               describe_address(address));
    }
    if (state == PinnedState::kNearby) {  // on the same page: allowed, for this one instruction
      opened_page = address;
      open_pinned_page(address);
      context.uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
      return;
    }
    fault_at(code,
             "the host touches pinned memory that is not allocated: {}",
             describe_address(address));
  }
  sigaction(number, &handler_before, nullptr);  // the instruction crashes again
}

void handle_step(int, siginfo_t*, void* raw_context) {
  auto& context = *static_cast<ucontext_t*>(raw_context);
  context.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  if (opened_page != 0) {
    opened_page = 0;
    close_pinned_pages();
  }
}

}  // namespace

void install_crash_handler() {
  // A stack of its own, since one that overflows is a reason to come here.
  constexpr std::size_t kStack = std::size_t{256} << 10U;
  thread_local std::byte* stack = nullptr;
  if (stack == nullptr) {
    stack = new std::byte[kStack];
    stack_t signal_stack{};
    signal_stack.ss_sp = stack;
    signal_stack.ss_size = kStack;
    sigaltstack(&signal_stack, nullptr);
  }
  struct sigaction present {};
  sigaction(SIGSEGV, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == &handle_crash) {
    return;
  }
  handler_before = present;
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  action.sa_sigaction = &handle_crash;
  sigaction(SIGSEGV, &action, nullptr);
  action.sa_sigaction = &handle_step;
  sigaction(SIGTRAP, &action, nullptr);
}

}  // namespace lockstep::emulated
