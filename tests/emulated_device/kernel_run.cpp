#include "emulated_device/kernel_run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include <sys/mman.h>

#include "emulated_device/access_checks.h"
#include "emulated_device/fault.h"
#include "emulated_device/settings.h"
#include "emulated_device/warp_calls.h"

// Saves the registers that a function must keep, and the stack pointer in *from; continues where `to` was saved.
extern "C" void lockstep_emulated_switch(void** from, void* to);
asm(R"(
.text
.globl lockstep_emulated_switch
.type lockstep_emulated_switch, @function
lockstep_emulated_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size lockstep_emulated_switch, .-lockstep_emulated_switch
)");

namespace lockstep::emulated {

thread_local Running* running = nullptr;

namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSavedRegisters = 6;
constexpr std::uint32_t kMaxEpochs = 1U << 24U;

const KernelLaunch kNoLaunch;
KernelThread no_thread;

struct Machine {
  std::vector<std::unique_ptr<KernelThread>> threads;  // of the largest block so far
  std::vector<Warp> warps;
  const KernelLaunch* launch = &kNoLaunch;
  KernelThread* current = &no_thread;
  void* scheduler_stack = nullptr;
  uint3 block{};
  unsigned num_threads = 0;
  unsigned num_ended = 0;
  unsigned num_at_barrier = 0;
  unsigned barrier_count = 0;  // of predicates that were true
  unsigned barrier_result = 0;
  std::byte* shared = nullptr;  // kMaxSharedBytes
  Running running;
};

Machine& machine() {
  static Machine& only = *new Machine;  // never destroyed: streams may outlive the program's end
  return only;
}

void leave(Machine& m) {
  lockstep_emulated_switch(&m.current->stack_pointer, m.scheduler_stack);
}

// Bottom of every fiber. A thread that has ended waits here for the next block's.
[[noreturn]] void run_threads() {
  Machine& m = machine();
  while (true) {
    m.launch->run_thread(m.launch->parameters.get());
    if (!m.current->async.copies.empty()) {
      copy_async_commit();
      copy_async_wait(0);
    }
    m.current->waiting = Waiting::kEnded;
    leave(m);
  }
}

std::unique_ptr<KernelThread> make_thread(unsigned number) {
  auto thread = std::make_unique<KernelThread>();
  void* const mapped = mmap(nullptr,
                            kPageBytes + kStackBytes,
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            -1,
                            0);
  if (mapped == MAP_FAILED || mprotect(mapped, kPageBytes, PROT_NONE) != 0) {
    fault("no memory for the stack of a kernel's thread");
  }
  thread->stack = static_cast<std::byte*>(mapped) + kPageBytes;
  auto** top = reinterpret_cast<void**>(thread->stack + kStackBytes);
  *--top = nullptr;  // run_threads returns nowhere; this aligns its stack as a call would
  *--top = reinterpret_cast<void*>(&run_threads);
  for (std::size_t i = 0; i < kSavedRegisters; ++i) {
    *--top = nullptr;
  }
  thread->stack_pointer = top;
  thread->number = number;
  thread->lane = number % kWarpLanes;
  thread->warp = number / kWarpLanes;
  return thread;
}

void prepare_threads(Machine& m, dim3 block) {
  m.num_threads = block.x * block.y * block.z;
  m.threads.reserve(m.num_threads);
  while (m.threads.size() < m.num_threads) {
    m.threads.push_back(make_thread(static_cast<unsigned>(m.threads.size())));
  }
  m.warps.assign((m.num_threads + kWarpLanes - 1) / kWarpLanes, Warp{});
  for (unsigned i = 0; i < m.num_threads; ++i) {
    m.threads[i]->index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    m.warps[i / kWarpLanes].present |= 1U << i % kWarpLanes;
  }
  if (m.shared == nullptr) {
    void* const mapped =
        mmap(nullptr, kMaxSharedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m.shared = static_cast<std::byte*>(mapped);
  }
}

// All that was before is ordered before all that follows.
void start_epoch(Machine& m) {
  m.running.epoch = (m.running.epoch + 1) % kMaxEpochs;
  if (m.running.epoch == 0) {
    forget_shared_accesses();
    m.running.epoch = 1;
  }
  for (Warp& warp : m.warps) {
    warp.num_meetings = 0;
    warp.last_full = 0;
    warp.last_common.clear();
  }
  for (unsigned i = 0; i < m.num_threads; ++i) {
    m.threads[i]->last_meeting = 0;
  }
}

void start_block(Machine& m) {
  for (unsigned i = 0; i < m.num_threads; ++i) {
    m.threads[i]->waiting = Waiting::kNo;
  }
  for (Warp& warp : m.warps) {
    warp.ready = warp.present;
    warp.meetings.clear();
  }
  m.num_ended = 0;
  m.num_at_barrier = 0;
  std::memset(m.shared, 0xff, m.launch->shared_bytes);
  reset_shared_states(m.launch->shared_bytes);
  start_epoch(m);
}

unsigned pick_bit(unsigned bits) {
  const unsigned turn = random_below(kWarpLanes);
  return (static_cast<unsigned>(std::countr_zero(std::rotr(bits, static_cast<int>(turn)))) + turn) %
         kWarpLanes;
}

void run_thread(Machine& m, KernelThread& thread) {
  m.current = &thread;
  m.running.thread = &thread;
  m.running.warp = &m.warps[thread.warp];
  m.running.stack = reinterpret_cast<std::uintptr_t>(thread.stack);
  running = &m.running;
  lockstep_emulated_switch(&m.scheduler_stack, thread.stack_pointer);
  running = nullptr;
  if (thread.waiting == Waiting::kEnded) {
    m.warps[thread.warp].ready &= ~(1U << thread.lane);
    ++m.num_ended;
  }
}

std::string list_waiting(const Machine& m, Waiting waiting) {
  std::string text;
  int shown = 0;
  for (unsigned i = 0; i < m.num_threads; ++i) {
    if (m.threads[i]->waiting == waiting && ++shown <= 4) {
      text += fmt::format(
          "{}{} at line {}", shown == 1 ? "" : ", ", describe_thread(i), m.threads[i]->line);
    }
  }
  return shown > 4 ? text + fmt::format(" and {} more", shown - 4) : text;
}

// No thread can go on.
void release_barrier(Machine& m) {
  for (unsigned i = 0; i < m.num_threads; ++i) {
    const KernelThread& thread = *m.threads[i];
    if (thread.waiting == Waiting::kWarp) {
      fault("lanes of a warp wait for others that ended or wait elsewhere: {} for mask {:#010x}{}",
            list_waiting(m, Waiting::kWarp),
            thread.mask,
            m.num_at_barrier > 0 ? "; at a barrier: " + list_waiting(m, Waiting::kBarrier) : "");
    }
  }
  if (m.num_ended > 0) {
    fault("__syncthreads() is not reached by all threads: {} of {} have ended, {}",
          m.num_ended,
          m.num_threads,
          list_waiting(m, Waiting::kBarrier));
  }
  const int line = m.threads[0]->line;
  for (unsigned i = 0; i < m.num_threads; ++i) {
    if (m.threads[i]->line != line) {
      fault("threads of a block wait at different __syncthreads(): {} at line {}, {} at line {}",
            describe_thread(0),
            line,
            describe_thread(i),
            m.threads[i]->line);
    }
    m.threads[i]->waiting = Waiting::kNo;
  }
  m.num_at_barrier = 0;
  m.barrier_result = m.barrier_count;
  m.barrier_count = 0;
  for (Warp& warp : m.warps) {
    warp.ready = warp.present;
  }
  start_epoch(m);
}

unsigned find_ready_warps(const Machine& m) {
  unsigned found = 0;
  for (std::size_t i = 0; i < m.warps.size(); ++i) {
    found |= m.warps[i].ready != 0 ? 1U << i : 0U;
  }
  return found;
}

void run_block(Machine& m) {
  start_block(m);
  const bool warps_run_ahead = random_below(4) != 0;
  while (m.num_ended < m.num_threads) {
    const unsigned ready_warps = find_ready_warps(m);
    if (ready_warps == 0) {
      release_barrier(m);
      continue;
    }
    const unsigned number = pick_bit(ready_warps);
    const Warp& warp = m.warps[number];
    do {
      const unsigned lane = pick_bit(warp.ready);
      run_thread(m, *m.threads[number * kWarpLanes + lane]);
    } while (warps_run_ahead && warp.ready != 0);
  }
}

}  // namespace

void run_kernel(const KernelLaunch& launch) {
  Machine& m = machine();
  m.launch = &launch;
  prepare_threads(m, launch.block);
  m.running.shared = reinterpret_cast<std::uintptr_t>(m.shared);
  m.running.shared_bytes = launch.shared_bytes;
  m.running.parameters = reinterpret_cast<std::uintptr_t>(launch.parameters.get());
  m.running.parameter_bytes = launch.parameter_bytes;
  m.running.checks = settings().checks;
  const dim3 grid = launch.grid;
  const unsigned num_blocks = grid.x * grid.y * grid.z;
  std::vector<unsigned> order(num_blocks);
  for (unsigned i = 0; i < num_blocks; ++i) {
    const unsigned other = random_below(i + 1);  // a shuffle, inside out
    order[i] = order[other];
    order[other] = i;
  }
  for (const unsigned number : order) {
    m.block = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
    m.running.block = number;
    run_block(m);
  }
  m.launch = &kNoLaunch;
  m.current = &no_thread;
}

std::string describe_thread(unsigned number) {
  const uint3 index = machine().threads[number]->index;
  return fmt::format("thread ({},{},{})", index.x, index.y, index.z);
}

std::string describe_running_kernel() {
  const Machine& m = machine();
  if (m.launch == &kNoLaunch) {
    return "";
  }
  const dim3 grid = m.launch->grid;
  const dim3 block = m.launch->block;
  std::string text = fmt::format("kernel {}, block ({},{},{}) of ({},{},{})",
                                 function_name(m.launch->kernel),
                                 m.block.x,
                                 m.block.y,
                                 m.block.z,
                                 grid.x,
                                 grid.y,
                                 grid.z);
  if (m.current != &no_thread) {
    text += fmt::format(
        ", {} of ({},{},{})", describe_thread(m.current->number), block.x, block.y, block.z);
  }
  return text;
}

bool is_stack_guard(std::uintptr_t address) {
  for (const auto& thread : machine().threads) {
    const auto stack = reinterpret_cast<std::uintptr_t>(thread->stack);
    if (address < stack && address >= stack - kPageBytes) {
      return true;
    }
  }
  return false;
}

uint3 thread_index() {
  return machine().current->index;
}

uint3 block_index() {
  return machine().block;
}

dim3 block_size() {
  return machine().launch->block;
}

dim3 grid_size() {
  return machine().launch->grid;
}

unsigned lane() {
  return machine().current->lane;
}

KernelThread& running_thread() {
  return *machine().current;
}

void* shared_memory() {
  return machine().shared;
}

int block_barrier(BarrierReduction reduction, bool predicate, int line) {
  Machine& m = machine();
  KernelThread& thread = *m.current;
  thread.waiting = Waiting::kBarrier;
  thread.line = line;
  m.warps[thread.warp].ready &= ~(1U << thread.lane);
  ++m.num_at_barrier;
  m.barrier_count += predicate ? 1 : 0;
  leave(m);
  switch (reduction) {
    case BarrierReduction::kAnd:
      return m.barrier_result == m.num_threads ? 1 : 0;
    case BarrierReduction::kOr:
      return m.barrier_result != 0 ? 1 : 0;
    default:
      return static_cast<int>(m.barrier_result);
  }
}

unsigned active_mask() {
  Machine& m = machine();
  const unsigned first = m.current->warp * kWarpLanes;
  unsigned mask = 0;
  for (unsigned i = first; i < std::min(first + kWarpLanes, m.num_threads); ++i) {
    mask |= m.threads[i]->waiting != Waiting::kEnded ? 1U << i % kWarpLanes : 0U;
  }
  return mask;
}

void kernel_trap(const char* reason) {
  fault_at(__builtin_return_address(0), "{}", reason);
}

long long clock_ticks() {
  static long long ticks = 0;
  return ++ticks;
}

namespace {

void order_lanes(Machine& m, Warp& warp, unsigned number, unsigned mask) {
  ++warp.num_meetings;
  if ((mask & warp.present) == warp.present) {
    warp.last_full = warp.num_meetings;
  } else {
    warp.last_common.resize(std::size_t{kWarpLanes} * kWarpLanes);
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1U) == 0) {
      continue;
    }
    m.threads[number * kWarpLanes + lane]->last_meeting = warp.num_meetings;
    if (warp.last_full != warp.num_meetings) {
      for (unsigned other = 0; other < kWarpLanes; ++other) {
        if ((mask >> other & 1U) != 0) {
          warp.last_common[lane * kWarpLanes + other] = warp.num_meetings;
        }
      }
    }
  }
}

Meeting& find_meeting(Warp& warp, unsigned mask) {
  for (Meeting& meeting : warp.meetings) {
    if (meeting.mask == mask) {
      return meeting;
    }
  }
  warp.meetings.push_back({mask, 0, WarpCall::kSync, 0});
  return warp.meetings.back();
}

}  // namespace

const std::byte* meet(
    WarpCall call, unsigned mask, const void* given, std::size_t bytes, int line) {
  const Unchecked unchecked;
  Machine& m = machine();
  KernelThread& thread = *m.current;
  Warp& warp = m.warps[thread.warp];
  if ((mask >> thread.lane & 1U) == 0) {
    fault("lane {} calls a warp function at line {} with mask {:#010x}, which does not name it",
          thread.lane,
          line,
          mask);
  }
  if ((mask & ~warp.present) != 0) {
    // A mask of all lanes is common for a last warp that is not whole, and means those that there are.
    if (mask != ~0U) {
      fault("mask {:#010x} at line {} names lanes that the block does not have", mask, line);
    }
    mask = warp.present;
  }
  Meeting& meeting = find_meeting(warp, mask);
  if (meeting.arrived == 0) {
    meeting.call = call;
    meeting.line = line;
  } else if (meeting.call != call || meeting.line != line) {
    fault("lanes of a warp meet at different calls: at line {} and at line {}", meeting.line, line);
  }
  std::memcpy(thread.given.data(), given, bytes);
  thread.line = line;
  thread.mask = mask;
  meeting.arrived |= 1U << thread.lane;
  if (meeting.arrived != mask) {
    thread.waiting = Waiting::kWarp;
    warp.ready &= ~(1U << thread.lane);
    leave(m);
    return thread.received.data();
  }
  meeting.arrived = 0;
  std::array<KernelThread*, kWarpLanes> lanes{};
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1U) != 0) {
      lanes[lane] = m.threads[thread.warp * kWarpLanes + lane].get();
      lanes[lane]->waiting = Waiting::kNo;
    }
  }
  order_lanes(m, warp, thread.warp, mask);
  exchange(call, mask, lanes);
  warp.ready |= mask;
  return thread.received.data();
}

}  // namespace lockstep::emulated
