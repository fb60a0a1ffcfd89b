#include "comm/local/local_communicator.h"

#include <algorithm>

#include "base/error.h"
#include "device/cpu/cpu_queue.h"

namespace lockstep {
namespace {

class DoneOperation final : public Operation {
 public:
  void start() override {}
  bool poll() override { return true; }
  void wait() override {}
};

}  // namespace

Memory LocalCommunicator::allocate(std::size_t bytes) {
  memory_.push_back(allocate_host(bytes));
  return {memory_.back().data(), bytes, nullptr};
}

std::size_t LocalCommunicator::allocated_bytes() const {
  std::size_t bytes = 0;
  for (const Memory& memory : memory_) {
    bytes += memory.bytes();
  }
  return bytes;
}

std::unique_ptr<Operation> LocalCommunicator::make_all_reduce(float* /*data*/,
                                                              long /*count*/,
                                                              Reduction /*reduction*/) {
  return std::make_unique<DoneOperation>();
}

std::unique_ptr<Operation> LocalCommunicator::make_reduce_scatter(float* /*data*/, long /*count*/) {
  return std::make_unique<DoneOperation>();
}

std::unique_ptr<Operation> LocalCommunicator::make_all_gather(void* /*data*/,
                                                              std::size_t /*bytes*/,
                                                              std::size_t /*chunk_bytes*/) {
  return std::make_unique<DoneOperation>();
}

void LocalCommunicator::all_gather(std::span<const double> mine, std::span<double> all) {
  LOCKSTEP_CHECK(mine.size() <= kMaxValues && all.size() == mine.size());
  std::copy(mine.begin(), mine.end(), all.begin());
}

void LocalCommunicator::broadcast(void* /*data*/, std::size_t /*bytes*/, int root) {
  LOCKSTEP_CHECK(root == 0);
}

std::unique_ptr<Communicator> LocalCommunicator::split(std::span<const int> color_of) {
  LOCKSTEP_CHECK(color_of.size() == 1);
  return std::make_unique<LocalCommunicator>();
}

}  // namespace lockstep
