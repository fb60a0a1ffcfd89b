#include <numeric>

#include "emulated_device/faults/fault.h"
#include "emulated_device/faults/kernels.h"

namespace lockstep::faults {
namespace {

constexpr int kCount = 4 * kThreads;

std::vector<float> numbers(int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

// Of kernels that write one value a thread.
template <void (*kKernel)(cudaStream_t, float*, bool)>
void run_alone(bool wrong) {
  const Values<float> out(kCount);
  kKernel(nullptr, out.data(), wrong);
  check_cuda(cudaDeviceSynchronize(), "running");
}

template <void (*kKernel)(cudaStream_t, float*, const float*, bool)>
void run_from(bool wrong) {
  const Values<float> in(numbers(2 * kCount));
  const Values<float> out(kCount);
  kKernel(nullptr, out.data(), in.data(), wrong);
  check_cuda(cudaDeviceSynchronize(), "running");
}

void run_fill(bool wrong) {
  const int count = 33;
  const Values<float> x(static_cast<std::size_t>(count));
  fill(nullptr, x.data(), count, wrong);
  expect(x.download() == numbers(count));
}

void run_shared_bounds(bool wrong) {
  const Values<float> out(1);
  shared_bounds(nullptr, out.data(), 50, wrong);
  expect(out.download()[0] == 1.0F);
}

void run_mixed_atomics(bool wrong) {
  const Values<unsigned> sum(std::vector<unsigned>{0});
  mixed_atomics(nullptr, sum.data(), wrong);
  expect(sum.download()[0] == 8);
}

void run_copy_vectors(bool wrong) {
  const int count = 30;
  const Values<float> from(numbers(count));
  const Values<float> to(static_cast<std::size_t>(count));
  copy_vectors(nullptr, to.data(), from.data(), count, wrong);
  expect(to.download() == numbers(count));
}

void run_undefined(bool wrong) {
  const Values<float> in(kCount);
  if (!wrong) {
    cudaMemset(in.data(), 0, kCount * sizeof(float));
  }
  const Values<float> out(kCount);
  read_all(nullptr, out.data(), in.data(), kCount);
  check_cuda(cudaDeviceSynchronize(), "running");
}

void run_host_memory(bool wrong) {
  const std::vector<float> host = numbers(kCount);
  const Values<float> device(host);
  const Values<float> out(kCount);
  read_all(nullptr, out.data(), wrong ? host.data() : device.data(), kCount);
  expect(out.download() == host);
}

constexpr Fault kFaults[] = {
    {"missing-barrier",
     "no __syncthreads between writes and reads of shared memory",
     "race in shared memory",
     1,
     &run_from<&reverse>},
    {"missing-second-barrier",
     "shared memory is written again before all have read it",
     "race in shared memory",
     1,
     &run_alone<&overwrite_shared>},
    {"divergent-barrier",
     "__syncthreads that some threads do not come to",
     "not reached by all threads",
     1,
     &run_alone<&divergent_barrier>},
    {"two-barriers",
     "threads of a block at different __syncthreads",
     "different __syncthreads()",
     1,
     &run_alone<&two_barriers>},
    {"shuffle-mask",
     "a shuffle's mask names lanes that do not take part",
     "lanes of a warp wait",
     1,
     &run_alone<&shuffle_mask>},
    {"different-masks",
     "lanes of one shuffle pass different masks",
     "lanes of a warp wait",
     1,
     &run_alone<&different_masks>},
    {"missing-lanes",
     "lanes return before a shuffle that names them",
     "lanes of a warp wait",
     1,
     &run_alone<&missing_lanes>},
    {"bounds-global",
     "a write one past the end of an allocation",
     "outside any allocation",
     1,
     &run_fill},
    {"bounds-shared",
     "a read one past the end of shared memory",
     "of shared memory, of which the block has",
     1,
     &run_shared_bounds},
    {"blocks-write",
     "several blocks write the same value",
     "race between blocks",
     1,
     &run_alone<&block_writes>},
    {"blocks-read",
     "a block reads what another writes in the same launch",
     "race between blocks",
     1,
     &run_alone<&block_reads>},
    {"mixed-atomics",
     "atomic and other changes of the same value",
     "race between blocks",
     1,
     &run_mixed_atomics},
    {"warp-race",
     "lanes exchange through shared memory without __syncwarp",
     "in the same warp",
     1,
     &run_alone<&exchange_in_warp>},
    {"vector-tail",
     "a vector reaches past the end of an allocation",
     "outside any allocation",
     1,
     &run_copy_vectors},
    {"vector-alignment",
     "a vector of 16 bytes at an address that is no multiple of 16",
     "not a multiple of 16",
     1,
     &run_from<&vector_alignment>},
    {"undefined-global",
     "a read of global memory that was never written",
     "nothing has written",
     1,
     &run_undefined},
    {"undefined-shared",
     "a read of shared memory that was never written",
     "nothing has written",
     1,
     &run_alone<&undefined_shared>},
    {"copy-wait",
     "shared memory is read before the asynchronous copy into it was waited for",
     "nobody has waited for",
     1,
     &run_from<&copy_wait>},
    {"copy-barrier",
     "another thread's copy is read without a barrier",
     "race in shared memory",
     1,
     &run_from<&copy_barrier>},
    {"copy-groups",
     "the last group of copies is read when all but one were waited for",
     "nobody has waited for",
     1,
     &run_from<&copy_groups>},
    {"host-memory",
     "a kernel reads ordinary memory of the host",
     "memory of the host",
     1,
     &run_host_memory},
    {"stack", "a thread's stack is too deep", "bytes of stack", 1, &run_alone<&deep_stack>},
};

}  // namespace

std::span<const Fault> kernel_faults() {
  return kFaults;
}

}  // namespace lockstep::faults
