// Speed of the all-reduce between the ranks that mpirun started.
// mpirun -np 2 --bind-to core bench_allreduce
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "comm/mpi/runtime.h"

namespace {

using lockstep::Communicator;
using lockstep::Operation;

constexpr int kSamples = 11;

/// Median seconds of one start and wait.
double measure(Communicator& group, Operation& operation, std::size_t bytes) {
  const int repeats = static_cast<int>(std::clamp<std::size_t>((8UL << 20) / bytes, 2, 2000));
  std::vector<double> samples;
  for (int sample = 0; sample < kSamples; ++sample) {
    group.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int repeat = 0; repeat < repeats; ++repeat) {
      operation.start();
      operation.wait();
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    samples.push_back(elapsed.count() / repeats);
  }
  std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
  return samples[kSamples / 2];
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::MpiRuntime runtime(argc, argv);
  const auto group = lockstep::make_world(runtime, {});
  constexpr std::size_t kLargest = 64UL << 20;
  const lockstep::Memory memory = group->allocate(kLargest);
  if (group->rank() == 0) {
    std::printf("%d ranks\n%10s %22s %22s\n",
                group->size(),
                "KiB",
                "ordered us   GB/s",
                "native us   GB/s");
  }
  for (std::size_t bytes = 4096; bytes <= kLargest; bytes *= 4) {
    const long count = static_cast<long>(bytes / sizeof(float));
    double seconds[2] = {};
    int column = 0;
    for (const auto reduction : {lockstep::Reduction::kOrdered, lockstep::Reduction::kNative}) {
      const auto operation = group->make_all_reduce(memory.as<float>(), count, reduction);
      seconds[column++] = measure(*group, *operation, bytes);
    }
    if (group->rank() == 0) {
      const double giga = static_cast<double>(bytes) * 1e-9;
      std::printf("%10zu %14.1f %7.2f %14.1f %7.2f\n",
                  bytes / 1024,
                  seconds[0] * 1e6,
                  giga / seconds[0],
                  seconds[1] * 1e6,
                  giga / seconds[1]);
    }
  }
  return 0;
}
